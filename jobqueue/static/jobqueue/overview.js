/* Keep the Overview up to date, without a reload.

   The script fetches the parts again every few seconds and replaces those that have changed. It does not fetch while the page is in the
   background. A part that the pointer is over, that has the focus, or in which text is selected, stays as it is until then, so no row
   moves away from under the pointer. Without this script the page is complete, and does not change. */
"use strict";

(function () {
  const EVERY_MS = 5_000, AFTER_FAILURE_MS = 15_000, TIMEOUT_MS = 15_000, MOST_FAILURES = 20;
  const page = document.getElementById("jobqueue-overview");
  if (!page || !page.dataset.url || !window.fetch) return;

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
  function keepState(part, fresh) {
    const old = part.querySelectorAll("details"), scrolled = part.querySelectorAll(".jq-scroll");
    fresh.querySelectorAll("details").forEach((one, index) => {
      if (old[index]) one.open = old[index].open;
    });
    return () => fresh.querySelectorAll(".jq-scroll").forEach((one, index) => {
      if (scrolled[index]) one.scrollLeft = scrolled[index].scrollLeft;
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
      if (part.innerHTML === fresh.innerHTML) continue;
      if (isHeld(part)) {
        held = true;
        continue;
      }
      const node = document.importNode(fresh, true);
      const scroll = keepState(part, node);
      part.replaceWith(node);
      scroll();
    }
    show(held ? "held" : "live");
  }

  async function refresh() {
    timer = 0;
    if (document.hidden || isFetching) return;
    isFetching = true;
    let wait = EVERY_MS;
    try {
      const response = await fetch(page.dataset.url, { credentials: "same-origin", signal: AbortSignal.timeout(TIMEOUT_MS) });
      if (response.status === 403 || response.status === 404) failures = MOST_FAILURES;
      if (!response.ok) throw new Error(response.statusText);
      const made = new DOMParser().parseFromString(await response.text(), "text/html").getElementById("jobqueue-overview");
      if (made) put(made);
      failures = 0;
    } catch {
      failures += 1;
      wait = AFTER_FAILURE_MS;
      show("off");
    }
    isFetching = false;
    if (failures < MOST_FAILURES) plan(wait);
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
