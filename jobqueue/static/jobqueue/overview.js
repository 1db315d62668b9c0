/* Keep the Overview up to date, without a reload.

   The script fetches the parts again every few seconds and replaces those that have changed. It does not fetch while the page is in the
   background. A part that the pointer is over, that has the focus, or in which text is selected, stays as it is until then, so no row
   moves away from under the pointer. Without this script the page is complete, and does not change. */
"use strict";

(function () {
  const EVERY_MS = 5_000, AFTER_FAILURE_MS = 15_000, TIMEOUT_MS = 15_000, MOST_FAILURES = 20;
  const page = document.getElementById("jobqueue-overview");
  if (!page || !page.dataset.url) return;

  let timer = 0, failures = 0, isFetching = false;
  const canHover = window.matchMedia("(hover: hover)").matches;

  function show(name) {
    const node = page.querySelector(".jq-live");
    if (!node || node.dataset.mode === name) return;
    node.dataset.mode = name === "live" ? "live" : "reconnecting";
    node.textContent = node.dataset[name] || "";
  }

  function isHeld(part) {
    const selection = document.getSelection();
    const isSelected = selection && !selection.isCollapsed && part.contains(selection.anchorNode);
    return part.contains(document.activeElement) || isSelected || (canHover && part.matches(":hover"));
  }

  // What a user has opened or scrolled stays so.
  function keepOpen(part, fresh) {
    const old = part.querySelectorAll("details");
    fresh.querySelectorAll("details").forEach((one, index) => {
      if (old[index]) one.open = old[index].open;
    });
  }

  function replace(part, fresh) {
    const scrolled = [...part.querySelectorAll(".jq-scroll")].map((one) => [one.scrollLeft, one.scrollTop]);
    const node = document.importNode(fresh, true);
    part.replaceWith(node);
    node.querySelectorAll(".jq-scroll").forEach((one, index) => {
      if (scrolled[index]) [one.scrollLeft, one.scrollTop] = scrolled[index];
    });
  }

  function put(made) {
    let held = false;
    const parts = new Map([...page.querySelectorAll("[data-part]")].map((part) => [part.dataset.part, part]));
    const names = [...made.querySelectorAll("[data-part]")].map((part) => part.dataset.part);
    if (names.join() !== [...parts.keys()].join()) {
      window.location.reload(); // other rights: another page
      return;
    }
    for (const fresh of made.querySelectorAll("[data-part]")) {
      const part = parts.get(fresh.dataset.part);
      keepOpen(part, fresh);
      if (part.isEqualNode(fresh)) continue;
      if (isHeld(part)) held = true;
      else replace(part, fresh);
    }
    show(held ? "held" : "live");
  }

  function refresh() {
    timer = 0;
    if (document.hidden || isFetching) return;
    isFetching = true;
    const request = new XMLHttpRequest(); // it parses the answer into an inert document
    request.open("GET", page.dataset.url);
    request.responseType = "document";
    request.timeout = TIMEOUT_MS;
    request.setRequestHeader("X-Jobqueue-Part", "overview");
    request.onloadend = () => {
      isFetching = false;
      const made = request.status === 200 && request.response && request.response.getElementById("jobqueue-overview");
      failures = made ? 0 : request.status === 403 || request.status === 404 ? MOST_FAILURES : failures + 1;
      if (made) {
        for (const one of made.querySelectorAll("script")) one.remove(); // there are none, and none must run
        put(made);
      } else {
        show("off");
      }
      if (failures < MOST_FAILURES) plan(made ? EVERY_MS : AFTER_FAILURE_MS);
    };
    request.send();
  }

  function plan(wait) {
    clearTimeout(timer);
    timer = setTimeout(refresh, wait);
  }

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) clearTimeout(timer);
    else if (failures < MOST_FAILURES) plan(0);
  });
  show("live");
  plan(EVERY_MS);
})();
