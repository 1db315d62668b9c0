/* Keep the rows of a list up to date, without a reload: the cells of the rows change in place, and a line says how many rows are new or no
   longer on the page. No row is added, removed or moved. The script does not fetch while the page is in the background, and waits at
   least twenty times as long as the server has taken. While the pointer is over the list or text in it is selected, nothing changes.
   Without this script the page is complete, and does not change. */
"use strict";

(function () {
  const SHORTEST_MS = 10_000, SHARE = 20, TIMEOUT_MS = 30_000, MOST_FAILURES = 10;
  const line = document.querySelector(".jq-fresh"), table = line && document.querySelector(line.dataset.table);
  if (!table) return;
  const mode = line.querySelector(".jq-live"), change = line.querySelector(".jq-change");
  const canHover = window.matchMedia("(hover: hover)").matches;
  let timer = 0, failures = 0, isFetching = false, wait = SHORTEST_MS;

  function show(name) {
    mode.dataset.mode = name === "live" ? "live" : "reconnecting";
    mode.textContent = mode.dataset[name];
  }

  // The rows of a table by the pages to which they lead.
  function rowsOf(body) {
    const rows = [...body.rows].map((row) => [row.querySelector("th a[href]"), row]);
    return new Map(rows.filter(([link]) => link).map(([link, row]) => [link.getAttribute("href"), row]));
  }

  function isHeld() {
    const selection = document.getSelection();
    return (canHover && table.matches(":hover")) || (selection && !selection.isCollapsed && table.contains(selection.anchorNode));
  }

  function update(row, fresh) {
    if (row.cells.length !== fresh.cells.length) return;
    [...row.cells].forEach((cell, index) => {
      const made = fresh.cells[index];
      if (cell.isEqualNode(made) || cell.querySelector("input") || cell.contains(document.activeElement)) return;
      cell.className = made.className;
      cell.replaceChildren(...document.importNode(made, true).childNodes);
    });
  }

  function put(body) {
    const shown = rowsOf(table.tBodies[0]), fresh = rowsOf(body);
    const added = [...fresh.keys()].filter((key) => !shown.has(key)).length;
    const gone = [...shown.keys()].filter((key) => !fresh.has(key)).length;
    change.hidden = !added && !gone;
    change.querySelector("[data-number=added]").textContent = String(added);
    change.querySelector("[data-number=gone]").textContent = String(gone);
    if (isHeld()) {
      show("held");
      return;
    }
    for (const [key, row] of shown) {
      row.classList.toggle("jq-gone", !fresh.has(key));
      if (fresh.has(key)) update(row, fresh.get(key));
    }
    show("live");
  }

  function refresh() {
    if (document.hidden || isFetching) return;
    isFetching = true;
    const began = performance.now(), request = new XMLHttpRequest(); // it parses the answer into an inert document
    request.open("GET", window.location.href.split("#")[0]);
    request.responseType = "document";
    request.timeout = TIMEOUT_MS;
    request.onloadend = () => {
      isFetching = false;
      wait = Math.max(SHORTEST_MS, SHARE * (performance.now() - began));
      const page = request.status === 200 ? request.response : null;
      const made = page && page.querySelector(".jq-fresh") ? page.querySelector(line.dataset.table) : null; // else, another page
      failures = page && page.querySelector(".jq-fresh") ? 0 : failures + 1;
      if (failures) show("off");
      else put(made ? made.tBodies[0] : document.createElement("tbody"));
      if (failures < MOST_FAILURES) plan(wait);
    };
    request.send();
  }

  function plan(after) {
    clearTimeout(timer);
    timer = setTimeout(refresh, after);
  }

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) clearTimeout(timer);
    else if (failures < MOST_FAILURES) plan(0);
  });
  show("live");
  plan(wait);
})();
