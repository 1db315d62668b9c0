/* A client of the streams of events, without dependencies: EventSource that also comes back where the server refused, that makes a
   connection anew which a network has dropped without a word, and that rests while nobody looks.

     const stop = jobqueue.follow("/jobqueue/jobs/7/events/", (event) => { ... }, { mode: (name) => { ... } });

   The function gets each event once, as the object that the server sent: {id, event, job_id, at, attempt, status, data, ...}; the event
   "jobqueue.snapshot", which comes first and after a gap, has in its data how things stand. Texts in it are data from outside: put them
   into a page as text, never as markup. `mode` is told "live", "reconnecting" or "off" (refused, or resting). */
"use strict";

(function () {
  // As in jobqueue/core/event_names.py: a browser hears only the events whose names it was told.
  const NAMES = [
    "jobqueue.snapshot", "jobqueue.reset",
    "job.enqueued", "job.started", "job.progress", "job.phase.started", "job.phase.completed", "job.retrying", "job.handed_back",
    "job.sleeping", "job.waiting", "job.paused", "job.resumed", "job.completed", "job.failed", "job.canceled", "job.lease_expired",
    "job.webhook.delivered", "job.webhook.failed", "job.stale", "job.deleted",
  ];
  const SHORTEST_MS = 5_000, LONGEST_MS = 60_000;
  const SILENCE_MS = 120_000; // pings are not heard here: what was quiet for so long may be dead
  const HIDDEN_MS = 15_000; // all tabs share six connections to a site without HTTP/2
  const MOST_REMEMBERED = 5_000;

  function parsed(text) {
    try {
      return JSON.parse(text);
    } catch {
      return null;
    }
  }

  /* Follow a stream; return what stops it. options: `mode`, and `mostFailures`, how often in a row the server may refuse before it is
     left in peace until somebody looks at the page again (default 8). */
  function follow(url, told, options) {
    const { mode = () => {}, mostFailures = 8 } = options || {};
    const seen = new Set(); // a replay may bring an event twice
    const timers = {};
    let source = null, failures = 0, lastId = "", stopped = false;

    function after(name, milliseconds, act) {
      window.clearTimeout(timers[name]);
      timers[name] = window.setTimeout(act, milliseconds);
    }

    function address() { // EventSource itself says so only where it has come back by itself
      return lastId ? `${url}${url.includes("?") ? "&" : "?"}snapshot=1&last_event_id=${encodeURIComponent(lastId)}` : url;
    }

    function open() {
      close();
      if (stopped || document.hidden) return;
      const made = new EventSource(address());
      source = made;
      made.onopen = () => made === source && listen();
      made.onerror = () => made === source && broken();
      for (const name of NAMES) made.addEventListener(name, (message) => made === source && hear(name, message));
    }

    function listen() {
      mode("live");
      after("silence", SILENCE_MS, open);
    }

    function hear(name, message) {
      listen();
      failures = 0;
      lastId = message.lastEventId || lastId;
      const event = parsed(message.data);
      if (event === null || typeof event !== "object") return;
      if (typeof event.id === "number") {
        if (seen.has(event.id)) return;
        seen.add(event.id);
        if (seen.size > MOST_REMEMBERED) seen.delete(seen.values().next().value);
      }
      told(event);
    }

    function broken() {
      if (source.readyState !== EventSource.CLOSED) {
        mode("reconnecting"); // the browser does it
        return;
      }
      // An answer that is no stream (no room, no permission, no server for a moment) is final to the browser.
      close();
      mode("off");
      failures += 1;
      if (failures >= mostFailures) return;
      const pause = Math.min(SHORTEST_MS * 2 ** (failures - 1), LONGEST_MS);
      after("again", pause * (0.75 + Math.random() / 2), open);
    }

    function close() {
      window.clearTimeout(timers.again);
      window.clearTimeout(timers.silence);
      if (source) source.close();
      source = null;
    }

    function rest() {
      if (source) mode("off");
      close();
    }

    function look() {
      window.clearTimeout(timers.hidden);
      if (document.hidden) {
        after("hidden", HIDDEN_MS, rest);
      } else if (!source) {
        failures = 0;
        open();
      }
    }

    function again() { // the network is back, or the page is, from where a browser keeps the last ones
      failures = 0;
      open();
    }

    function stop() {
      stopped = true;
      close();
      window.clearTimeout(timers.hidden);
      document.removeEventListener("visibilitychange", look);
      window.removeEventListener("pagehide", close);
      window.removeEventListener("pageshow", look);
      window.removeEventListener("online", again);
    }

    document.addEventListener("visibilitychange", look);
    window.addEventListener("pagehide", close);
    window.addEventListener("pageshow", look);
    window.addEventListener("online", again);
    open();
    return stop;
  }

  window.jobqueue = Object.assign(window.jobqueue || {}, { follow });
})();
