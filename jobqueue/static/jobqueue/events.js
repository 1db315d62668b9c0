/* A client of the streams of events, without dependencies. In addition to EventSource, it retries after a refusal of the server, replaces
   a connection that the network has dropped silently, and disconnects while the page is hidden.

     const stop = jobqueue.follow("/jobqueue/jobs/7/events/", (event) => { ... }, { mode: (name) => { ... } });

   The function gets each event once, as the object that the server sent: {id, event, job_id, at, attempt, status, data, ...}; the event
   "jobqueue.snapshot", the first one and the one after a gap, has the current state in its data. Texts in it are untrusted: insert them
   into a page as text, never as markup. `mode` is called with "live", "reconnecting" or "off" (refused, or hidden). */
"use strict";

(function () {
  // As in jobqueue/core/event_names.py: a browser dispatches only the events whose names have a listener.
  const NAMES = [
    "jobqueue.snapshot", "jobqueue.reset",
    "job.enqueued", "job.started", "job.progress", "job.phase.started", "job.phase.completed", "job.retrying", "job.handed_back",
    "job.sleeping", "job.waiting", "job.paused", "job.resumed", "job.completed", "job.failed", "job.canceled", "job.lease_expired",
    "job.webhook.delivered", "job.webhook.failed", "job.stale", "job.deleted",
  ];
  const SHORTEST_MS = 5_000, LONGEST_MS = 60_000;
  const SILENCE_MS = 120_000; // pings do not reach this code: a connection without events for this time may be dead
  const HIDDEN_MS = 15_000; // all tabs share six connections to a site without HTTP/2
  const MOST_REMEMBERED = 5_000;

  function parsed(text) {
    try {
      return JSON.parse(text);
    } catch {
      return null;
    }
  }

  /* Follow a stream; return a function that stops it. options: `mode`, and `mostFailures`, the number of refusals in a row (default 8)
     after which the client does not retry until the page is shown again. */
  function follow(url, onEvent, options) {
    const { mode = () => {}, mostFailures = 8 } = options || {};
    const seen = new Set(); // a replay can send an event twice
    const timers = {};
    let source = null, failures = 0, lastId = "", stopped = false;

    function after(name, milliseconds, act) {
      window.clearTimeout(timers[name]);
      timers[name] = window.setTimeout(act, milliseconds);
    }

    function address() { // EventSource sends the header only if it has reconnected by itself
      return lastId ? `${url}${url.includes("?") ? "&" : "?"}snapshot=1&last_event_id=${encodeURIComponent(lastId)}` : url;
    }

    function open() {
      close();
      if (stopped || document.hidden) return;
      const made = new EventSource(address());
      source = made;
      made.onopen = () => made === source && onOpen();
      made.onerror = () => made === source && onFailure();
      for (const name of NAMES) made.addEventListener(name, (message) => made === source && receive(name, message));
    }

    function onOpen() {
      mode("live");
      after("silence", SILENCE_MS, open);
    }

    function receive(name, message) {
      onOpen();
      failures = 0;
      lastId = message.lastEventId || lastId;
      const event = parsed(message.data);
      if (event === null || typeof event !== "object") return;
      if (typeof event.id === "number") {
        if (seen.has(event.id)) return;
        seen.add(event.id);
        if (seen.size > MOST_REMEMBERED) seen.delete(seen.values().next().value);
      }
      onEvent(event);
    }

    function onFailure() {
      if (source.readyState !== EventSource.CLOSED) {
        mode("reconnecting"); // the browser reconnects
        return;
      }
      // After an answer that is no stream (too many streams, no permission, no server), the browser does not retry.
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

    function disconnect() {
      if (source) mode("off");
      close();
    }

    function onVisibility() {
      window.clearTimeout(timers.hidden);
      if (document.hidden) {
        after("hidden", HIDDEN_MS, disconnect);
      } else if (!source) {
        failures = 0;
        open();
      }
    }

    function reconnect() { // the network is back
      failures = 0;
      open();
    }

    function stop() {
      stopped = true;
      close();
      window.clearTimeout(timers.hidden);
      document.removeEventListener("visibilitychange", onVisibility);
      window.removeEventListener("pagehide", close);
      window.removeEventListener("pageshow", onVisibility);
      window.removeEventListener("online", reconnect);
    }

    document.addEventListener("visibilitychange", onVisibility);
    window.addEventListener("pagehide", close);
    window.addEventListener("pageshow", onVisibility);
    window.addEventListener("online", reconnect);
    open();
    return stop;
  }

  window.jobqueue = Object.assign(window.jobqueue || {}, { follow });
})();
