/* Keep the page of a bulk action up to date until the action has ended. It rests while the tab is hidden. */
"use strict";

(() => {
  const EVERY = 2000;
  let waiting = 0;

  function refresh() {
    waiting = 0;
    const shown = document.getElementById("jobqueue-bulk");
    if (!shown || shown.dataset.open !== "yes" || document.hidden) return;
    const request = new XMLHttpRequest(); // it parses the answer into an inert document
    request.open("GET", shown.dataset.url);
    request.responseType = "document";
    request.setRequestHeader("X-Jobqueue-Part", "bulk");
    request.addEventListener("load", () => {
      const part = request.status === 200 && request.response ? request.response.getElementById("jobqueue-bulk") : null;
      if (!part) return;
      if (part.dataset.open !== "yes") shown.replaceWith(part);
      else shown.querySelector("[data-part=state]").replaceWith(part.querySelector("[data-part=state]")); // the buttons keep the focus
    });
    request.addEventListener("loadend", plan); // after an error, the next turn tries again
    request.send();
  }

  function plan() {
    if (!waiting) waiting = setTimeout(refresh, EVERY);
  }

  document.addEventListener("visibilitychange", plan);
  plan();
})();
