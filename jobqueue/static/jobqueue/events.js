/* A client of the streams of events: EventSource that comes back also where the server refused, and rests while nobody looks. */
"use strict";

(function () {
  const NAMES = [
    "jobqueue.snapshot", "jobqueue.reset",
    "job.enqueued", "job.started", "job.progress", "job.phase.started", "job.phase.completed", "job.retrying", "job.handed_back",
    "job.sleeping", "job.waiting", "job.paused", "job.resumed", "job.completed", "job.failed", "job.canceled", "job.lease_expired",
    "job.webhook.delivered", "job.webhook.failed", "job.stale", "job.deleted",
  ];
  const SHORTEST_MS = 2000;
  const LONGEST_MS = 60000;

  /* Follow a stream. `told(event)` gets each event once, as the object that the server sent. Returns what stops it.
     options: mostFailures, how often in a row it may fail before it gives up (default 8). */
  function follow(url, told, options) {
    const mostFailures = (options && options.mostFailures) || 8;
    const seen = new Set(); // a replay may bring an event twice
    let source = null, timer = null, failures = 0, lastId = "", stopped = false;

    function address() {
      if (!lastId) { return url; }
      const mark = url.includes("?") ? "&" : "?";
      return url + mark + "last_event_id=" + encodeURIComponent(lastId);
    }

    function open() {
      timer = null;
      if (stopped || source || document.hidden) { return; }
      source = new EventSource(address());
      source.onopen = function () { failures = 0; };
      source.onerror = function () {
        if (source && source.readyState === EventSource.CLOSED) { fail(); } // else the browser comes back by itself
      };
      NAMES.forEach(function (name) { source.addEventListener(name, hear); });
    }

    function hear(message) {
      lastId = message.lastEventId || lastId;
      let event;
      try { event = JSON.parse(message.data); } catch (error) { return; }
      if (event.id !== null) {
        if (seen.has(event.id)) { return; }
        seen.add(event.id);
        if (seen.size > 5000) { seen.delete(seen.values().next().value); }
      }
      told(event);
    }

    function close() {
      if (source) { source.close(); source = null; }
    }

    function fail() {
      close();
      failures += 1;
      if (failures >= mostFailures) { stop(); return; }
      const pause = Math.min(SHORTEST_MS * Math.pow(2, failures - 1), LONGEST_MS);
      timer = window.setTimeout(open, pause * (0.5 + Math.random() / 2));
    }

    function look() { // a browser has only a few connections to one server: a page that nobody sees keeps none
      if (document.hidden) {
        close();
        window.clearTimeout(timer);
      } else if (!stopped) {
        window.clearTimeout(timer);
        open();
      }
    }

    function stop() {
      stopped = true;
      close();
      window.clearTimeout(timer);
      document.removeEventListener("visibilitychange", look);
      window.removeEventListener("pagehide", close);
    }

    document.addEventListener("visibilitychange", look);
    window.addEventListener("pagehide", close);
    window.addEventListener("pageshow", look);
    open();
    return stop;
  }

  window.jobqueue = Object.assign(window.jobqueue || {}, { follow: follow });
})();
