/* The page of one job, live. Text from outside is only ever set as text. What the server alone can say (which buttons there are, the
   report) is taken from the page itself, asked for again, whose texts the server has escaped. Without a stream the page stays as it is. */
"use strict";

(function () {
  const page = document.querySelector("[data-events]");
  if (!page || !window.EventSource || !window.jobqueue) { return; }
  const RENEW_MS = 300;
  let renewing = null, busy = false, again = false;

  function byId(id) { return document.getElementById(id); }

  function words(name) {
    const text = name.replace(/^job\./, "").replace(/[._]/g, " ");
    return text.charAt(0).toUpperCase() + text.slice(1);
  }

  function element(name, className, text) {
    const made = document.createElement(name);
    made.className = className;
    made.textContent = text;
    return made;
  }

  function clock(at) {
    const when = new Date(at);
    return isNaN(when) ? "" : when.toLocaleTimeString();
  }

  function particulars(data) {
    const rest = Object.keys(data).filter(function (key) { return key !== "message" && data[key] !== null && data[key] !== ""; });
    const parts = rest.map(function (key) {
      const value = data[key];
      return key.replace(/_/g, " ") + ": " + (typeof value === "object" ? JSON.stringify(value) : String(value));
    });
    return (data.message ? [String(data.message)] : []).concat(parts).join("; ").slice(0, 300);
  }

  function addToTimeline(event) {
    const list = byId("jobqueue-timeline");
    if (!list || event.id === null || list.querySelector('[data-event-id="' + Number(event.id) + '"]')) { return; }
    const item = element("li", "jq-event jq-new", "");
    item.dataset.eventId = String(event.id);
    item.dataset.name = event.event;
    item.append(clock(event.at) + " ", element("strong", "jq-event-name", words(event.event)));
    if (event.attempt) { item.append(" ", element("span", "jq-note", "run " + event.attempt)); }
    const text = particulars(event.data || {});
    if (text) { item.append(" ", element("span", "jq-event-text", text)); }
    list.append(item);
    const none = document.querySelector(".jq-no-events");
    if (none) { none.hidden = true; }
  }

  function showProgress(percent) {
    if (typeof percent !== "number") { return; }
    document.querySelectorAll("#jobqueue-progress, .jq-state progress").forEach(function (bar) { bar.value = percent; });
    document.querySelectorAll(".jq-state .jq-percent, #jobqueue-percent").forEach(function (one) { one.textContent = percent + " %"; });
  }

  function showMessage(text) {
    const shown = byId("jobqueue-message");
    if (shown && typeof text === "string") {
      shown.textContent = text;
      shown.hidden = !text;
    }
  }

  function showPhase(name, percent, message) {
    document.querySelectorAll("#jobqueue-phases tr[data-phase]").forEach(function (row) {
      if (row.dataset.phase !== name) { return; }
      const cells = { progress: percent + " %", message: message || "" };
      Object.keys(cells).forEach(function (cell) {
        const found = row.querySelector('[data-cell="' + cell + '"]');
        if (found) { found.textContent = cells[cell]; }
      });
    });
  }

  function renewSoon() {
    if (renewing === null) { renewing = window.setTimeout(renew, RENEW_MS); }
  }

  async function renew() {
    renewing = null;
    if (busy) { again = true; return; }
    busy = true;
    try {
      const reply = await fetch(window.location.href, { credentials: "same-origin", redirect: "error" });
      if (reply.ok) { swap(new DOMParser().parseFromString(await reply.text(), "text/html")); }
    } catch (error) { /* the next event tries again */ }
    busy = false;
    if (again) { again = false; renewSoon(); }
  }

  function plain(part) { // each form's token is another one each time, and says nothing
    const copy = part.cloneNode(true);
    copy.querySelectorAll('[name="csrfmiddlewaretoken"]').forEach(function (one) { one.remove(); });
    return copy.outerHTML;
  }

  function swap(fresh) {
    fresh.querySelectorAll("#jobqueue-timeline li").forEach(function (item) { // with the times as the server writes them
      const mine = document.querySelector('#jobqueue-timeline .jq-new[data-event-id="' + Number(item.dataset.eventId) + '"]');
      if (mine) { mine.replaceWith(document.importNode(item, true)); }
    });
    document.querySelectorAll("[data-live]").forEach(function (old) {
      const now = fresh.querySelector('[data-live="' + old.dataset.live + '"]');
      if (!now || plain(now) === plain(old)) { return; }
      const focused = old.contains(document.activeElement) ? document.activeElement.className : "";
      const open = Array.from(old.querySelectorAll("details")).map(function (one) { return one.open; });
      const made = document.importNode(now, true);
      made.querySelectorAll("details").forEach(function (one, index) { // the newest run comes first
        const before = open[index - (made.querySelectorAll("details").length - open.length)];
        if (before !== undefined) { one.open = before; }
      });
      old.replaceWith(made);
      if (focused) {
        const same = Array.from(made.querySelectorAll("button, a")).find(function (one) { return one.className === focused; });
        if (same) { same.focus(); }
      }
    });
  }

  function told(event) {
    if (event.event === "jobqueue.snapshot") {
      const job = event.data.job;
      if (job) {
        (job.events || []).forEach(function (one) { addToTimeline(Object.assign({ event: one.name }, one)); });
        showProgress(job.progress);
      }
      renewSoon();
      return;
    }
    if (event.event === "jobqueue.reset") { return; } // a snapshot follows
    if (event.event === "job.progress") {
      const data = event.data;
      showProgress(data.progress);
      showMessage(data.message);
      if (data.phase_progress !== undefined) { showPhase(data.phase, data.phase_progress, data.phase_message); }
      if (event.status && page.dataset.status !== event.status) { page.dataset.status = event.status; renewSoon(); }
      if (event.id !== null) { addToTimeline(event); }
      return;
    }
    addToTimeline(event);
    if (event.event !== "job.deleted") { renewSoon(); }
  }

  window.jobqueue.follow(page.dataset.events, told);
})();
