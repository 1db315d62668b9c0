/* Follow the stream of one job, one target or all jobs. No dependencies; what it gets is handed on as data, never as markup.

   const stream = new JobqueueStream("/jobqueue/jobs/7/events/", {
     snapshot(data) {},  // {job, events}: how things stand, at first and after every gap
     state(job) {},      // the job as it is now
     event(data) {},     // one event: {id, event, job_id, at, attempt, status, data, ...}; may come twice, so look at its id
     mode(name) {},      // "live", "reconnecting", "off" (refused, or closed for now) or "ended" (nothing will ever follow)
   });
   stream.open();        // and stream.close()

   A browser has six connections to a site without HTTP/2, shared by all of its tabs: a tab that nobody sees gives its own back. */

(function () {
  "use strict";

  // As in jobqueue/event_names.py: a browser hears only the events that it was told the names of.
  const NAMES = [
    "job.enqueued", "job.started", "job.progress", "job.phase.started", "job.phase.completed", "job.retrying", "job.handed_back",
    "job.sleeping", "job.waiting", "job.paused", "job.resumed", "job.completed", "job.failed", "job.canceled", "job.lease_expired",
    "job.webhook.delivered", "job.webhook.failed", "job.stale", "job.deleted",
  ];
  const FIRST_WAIT = 5_000, LONGEST_WAIT = 60_000, MOST_REFUSALS = 10;
  // A connection that a network has dropped without a word looks like a quiet one: it is made anew.
  const LONGEST_SILENCE = 120_000;
  const HIDDEN = 15_000;

  function parsed(text) {
    try {
      return JSON.parse(text);
    } catch {
      return null;
    }
  }

  class JobqueueStream {
    #address;
    #handlers;
    #source = null;
    #refusals = 0;
    #wanted = false;
    #timers = {};

    constructor(address, handlers) {
      this.#address = address;
      this.#handlers = handlers;
      document.addEventListener("visibilitychange", () => this.#looked());
      window.addEventListener("pagehide", () => this.#disconnect());
      window.addEventListener("pageshow", (event) => event.persisted && this.#looked());
      window.addEventListener("online", () => this.#anew());
    }

    open() {
      this.#wanted = true;
      this.#looked();
    }

    close() {
      this.#wanted = false;
      clearTimeout(this.#timers.hidden);
      this.#disconnect();
    }

    #tell(name, ...values) {
      if (this.#handlers[name]) this.#handlers[name](...values);
    }

    #after(name, milliseconds, act) {
      clearTimeout(this.#timers[name]);
      this.#timers[name] = setTimeout(act, milliseconds);
    }

    #looked() {
      clearTimeout(this.#timers.hidden);
      if (document.visibilityState === "hidden") {
        this.#after("hidden", HIDDEN, () => this.#source && (this.#disconnect(), this.#tell("mode", "off")));
      } else if (!this.#source) {
        this.#anew();
      }
    }

    #anew() {
      this.#refusals = 0;
      if (document.visibilityState !== "hidden") this.#connect();
    }

    #disconnect() {
      clearTimeout(this.#timers.again);
      clearTimeout(this.#timers.silence);
      if (this.#source) this.#source.close();
      this.#source = null;
    }

    #connect() {
      this.#disconnect();
      if (!this.#wanted) return;
      const source = new EventSource(this.#address);
      const hear = (name, act) =>
        source.addEventListener(name, (message) => {
          if (source !== this.#source) return;
          this.#heard();
          act(parsed(message.data));
        });
      this.#source = source;
      source.onopen = () => this.#heard();
      source.onerror = () => source === this.#source && this.#broken(source);
      hear("snapshot", (data) => {
        this.#refusals = 0;
        if (data) this.#tell("snapshot", data);
      });
      hear("state", (data) => data && this.#tell("state", data));
      hear("jobqueue.reset", () => {}); // a snapshot follows
      hear("jobqueue.end", () => {
        this.close();
        this.#tell("mode", "ended");
      });
      for (const name of NAMES) hear(name, (data) => data && this.#tell("event", data));
    }

    #heard() {
      this.#tell("mode", "live");
      this.#after("silence", LONGEST_SILENCE, () => this.#connect());
    }

    #broken(source) {
      if (source.readyState !== EventSource.CLOSED) {
        this.#tell("mode", "reconnecting"); // the browser does it, and says what it has seen last
        return;
      }
      // An answer that is no stream (too many of them, no permission, a login form) is final to the browser.
      this.#disconnect();
      this.#tell("mode", "off");
      this.#refusals += 1;
      if (this.#refusals > MOST_REFUSALS) return; // until somebody looks at the page again
      const wait = Math.min(LONGEST_WAIT, FIRST_WAIT * 2 ** (this.#refusals - 1));
      this.#after("again", wait * (0.75 + Math.random() / 2), () => document.visibilityState !== "hidden" && this.#connect());
    }
  }

  JobqueueStream.NAMES = NAMES;
  window.JobqueueStream = JobqueueStream;
})();
