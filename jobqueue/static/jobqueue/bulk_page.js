/* Keep the page of a bulk action up to date until the action has ended. It rests while the tab is hidden. */
"use strict";

(() => {
  const EVERY = 2000;
  let waiting = 0;

  async function refresh() {
    waiting = 0;
    const shown = document.getElementById("jobqueue-bulk");
    if (!shown || shown.dataset.open !== "yes" || document.hidden) return;
    try {
      const response = await fetch(shown.dataset.url, {headers: {"X-Jobqueue-Part": "bulk"}, redirect: "error"});
      if (response.ok) {
        const part = new DOMParser().parseFromString(await response.text(), "text/html").getElementById("jobqueue-bulk");
        if (part && part.dataset.open !== "yes") shown.replaceWith(part);
        else if (part) shown.querySelector("[data-part=state]").replaceWith(part.querySelector("[data-part=state]")); // the buttons keep the focus
      }
    } catch {
      // The next turn tries again.
    }
    plan();
  }

  function plan() {
    if (!waiting) waiting = setTimeout(refresh, EVERY);
  }

  document.addEventListener("visibilitychange", plan);
  plan();
})();
