/* Keep the admin's page of one job up to date, without a reload.

   The stream has what changes often (progress, message, phases, new events), and the page writes it as text. For all other parts (the
   buttons, the report, the result), the page fetches the same template again and replaces the changed nodes, so that focus, scroll
   position and opened runs stay. Without a stream, the page does not change, and shows that it is not live. */
"use strict";

(function () {
  const page = document.getElementById("jobqueue-job");
  if (!page || !page.dataset.events || !window.EventSource || !window.jobqueue) return;

  const FINAL = ["SUCCESS", "CANCELED"];
  const PATIENCE_MS = 2_000; // a shorter break is not shown
  const BETWEEN_FETCHES_MS = 1_500, AFTER_FAILURE_MS = 5_000, MOST_FAILURES = 5;
  const LOG_MS = 3_000;
  const EPILOGUE_MS = 20_000; // events that follow an end: webhooks
  const MOST_EVENTS = 500;
  const MINUTE = 60, HOUR = 3600, DAY = 86400;

  const find = (id) => document.getElementById(id);

  function put(node, text) {
    if (node && node.textContent !== text) node.textContent = text;
  }

  function make(name, classes, text) {
    const made = document.createElement(name);
    if (classes) made.className = classes;
    made.textContent = text;
    return made;
  }

  // Keep the part at the top of the window in place while parts above it grow. The browser's scroll anchoring would correct it twice.
  document.documentElement.style.overflowAnchor = "none";

  function keepingPosition(act) {
    const top = (element) => element.getBoundingClientRect().top;
    const held = window.scrollY > 0 && [...page.querySelectorAll("[data-part]")].find((part) => part.getBoundingClientRect().bottom > 0);
    const before = held && top(held);
    act();
    if (held && held.isConnected) window.scrollBy({ top: top(held) - before, behavior: "instant" });
  }

  // The mode of the connection -----------------------------------------------------------------------------------------------

  let mode = "", soon = 0;

  function showMode(name) {
    if (name === mode || mode === "deleted" || (mode === "ended" && name !== "deleted")) return;
    mode = name;
    clearTimeout(soon);
    const write = () => {
      const node = find("jobqueue-live");
      node.dataset.mode = name;
      put(node, node.dataset[name]);
    };
    if (name === "reconnecting") soon = setTimeout(write, PATIENCE_MS);
    else write();
  }

  // Values of the stream, until a fetched page has them --------------------------------------------------------------------------

  const news = new Map();
  let drawing = false;

  function note(name, value) {
    if (value === undefined || value === null) return;
    news.set(name, { value, at: Date.now() });
    if (!drawing) requestAnimationFrame(() => keepingPosition(draw));
    drawing = true;
  }

  const PHASE_CELLS = {
    status(row, status) {
      row.dataset.status = status;
      put(row.querySelector('[data-cell="status"]'), status.charAt(0) + status.slice(1).toLowerCase());
    },
    progress: (row, percent) => put(row.querySelector('[data-cell="progress"]'), `${percent} %`),
    message: (row, text) => put(row.querySelector('[data-cell="message"]'), text),
    attempts: (row, count) => put(row.querySelector('[data-cell="attempts"]'), String(count)),
  };

  function draw() {
    drawing = false;
    const rows = document.querySelectorAll("#jobqueue-phases tbody tr");
    for (const [name, { value }] of news) {
      const [what, position, cell] = name.split(" ");
      if (what === "progress" && find("jobqueue-progress")) {
        find("jobqueue-progress").value = value;
        put(find("jobqueue-percent"), `${value} %`);
      } else if (what === "message") {
        put(find("jobqueue-message"), value);
        find("jobqueue-message").hidden = !value;
      } else if (what === "phase" && rows[position]) {
        PHASE_CELLS[cell](rows[position], value);
      }
    }
  }

  function notePhase(phase) {
    for (const cell of Object.keys(PHASE_CELLS)) note(`phase ${phase.position} ${cell}`, phase[cell]);
    if (phase.status === "RUNNING") running = phase.position;
  }

  // The timeline -------------------------------------------------------------------------------------------------------------

  const timeline = () => find("jobqueue-timeline");
  const numbered = (item) => Number(item.dataset.eventId);

  // The same format as in jobqueue/admin/formatting.py.
  function duration(seconds) {
    const two = (number) => String(number).padStart(2, "0");
    const some = Math.max(seconds, 0), whole = Math.floor(some);
    if (some < 1) return `${some.toFixed(2)} s`;
    if (some < 10) return `${some.toFixed(1)} s`;
    if (whole < MINUTE) return `${whole} s`;
    if (whole < HOUR) return `${Math.floor(whole / MINUTE)} min ${two(whole % MINUTE)} s`;
    if (whole < DAY) return `${Math.floor(whole / HOUR)} h ${two(Math.floor((whole % HOUR) / MINUTE))} min`;
    return `${Math.floor(whole / DAY)} d ${Math.floor((whole % DAY) / HOUR)} h`;
  }

  function moment(at) {
    const when = new Date(at);
    const written = (zone) => {
      const day = new Intl.DateTimeFormat("sv-SE", { timeZone: zone, dateStyle: "short", timeStyle: "medium" }).format(when);
      const parts = new Intl.DateTimeFormat("en-GB", { timeZone: zone, timeZoneName: "short" }).formatToParts(when);
      return `${day} ${parts.find((part) => part.type === "timeZoneName").value}`;
    };
    const made = make("time", "", at);
    made.dateTime = at;
    try {
      made.textContent = written(timeline().dataset.zone);
    } catch {
      if (!Number.isNaN(when.valueOf())) made.textContent = written("UTC");
    }
    return made;
  }

  function particulars(data) {
    const words = (value) => (typeof value === "object" ? JSON.stringify(value) : String(value));
    const { message, ...rest } = data || {};
    // The list of phases has the position of a phase, and a first attempt is not worth a note.
    const said = (name, value) => name === "position" || (name === "attempt" && value === 1);
    const named = Object.entries(rest).filter(([name, value]) => value !== null && value !== "" && !said(name, value));
    return [...(message ? [words(message)] : []), ...named.map(([name, value]) => `${name.replaceAll("_", " ")}: ${words(value)}`)].join("; ");
  }

  function item(event, before) {
    const made = make("li", "jq-event jq-new", "");
    const name = event.event.replace(/^job\./, "").replace(/[._]/g, " ");
    const seconds = before ? (new Date(event.at) - new Date(before.querySelector("time").dateTime)) / 1000 : NaN;
    made.dataset.eventId = event.id;
    made.dataset.name = event.event;
    made.append(moment(event.at), " ", make("span", "jq-quiet jq-after", Number.isNaN(seconds) ? "" : `+${duration(seconds)}`), " ");
    made.append(make("strong", "jq-event-name", name.charAt(0).toUpperCase() + name.slice(1)));
    if (event.attempt) made.append(" ", make("span", "jq-note", `run ${event.attempt}`));
    const text = particulars(event.data);
    if (text) made.append(" ", make("span", "jq-event-text", text));
    return made;
  }

  // Insert an item in the order of the ids, because events can arrive out of order. Skip an item that exists.
  function place(id, maker) {
    const list = timeline();
    let before = list.lastElementChild;
    while (before && numbered(before) > id) before = before.previousElementSibling;
    if (before && numbered(before) === id) return before;
    const made = maker(before);
    list.insertBefore(made, before ? before.nextSibling : list.firstChild);
    while (list.childElementCount > MOST_EVENTS) list.firstElementChild.remove();
    return made;
  }

  function addEvent(event) {
    if (typeof event.id !== "number" || typeof event.event !== "string") return;
    place(event.id, (before) => item(event, before));
    const none = page.querySelector(".jq-no-events");
    if (none) none.remove();
  }

  // If none of the shown events is among the newest, there can be a gap: remove the older ones, as after a reload.
  function showNewest(events) {
    const list = timeline(), known = new Set(events.map((event) => event.id));
    const items = [...list.children];
    if (events.length && items.length && !items.some((one) => known.has(numbered(one)))) items.forEach((one) => one.remove());
    events.forEach(addEvent);
  }

  // The parts that the server renders -----------------------------------------------------------------------------------------

  let waiting = 0, asked = false, last = 0, failures = 0;

  function refresh() {
    if (waiting || asked) {
      waiting = waiting || -1; // again, after the answer
      return;
    }
    waiting = setTimeout(fetchPart, Math.max(0, last + BETWEEN_FETCHES_MS - Date.now()));
  }

  function fetchPart() {
    waiting = 0;
    asked = true;
    last = Date.now();
    const request = new XMLHttpRequest(); // it parses the answer into an inert document
    request.open("GET", location.pathname + location.search); // with the filters of the log
    request.responseType = "document";
    request.setRequestHeader("X-Jobqueue-Part", "job");
    request.timeout = 15_000;
    request.onloadend = () => {
      asked = false;
      const fresh = request.status === 200 && request.response && request.response.getElementById("jobqueue-job");
      const again = waiting || (!fresh && request.status !== 403 && request.status !== 404 && ++failures <= MOST_FAILURES);
      waiting = 0;
      if (fresh) {
        failures = 0;
        for (const one of fresh.querySelectorAll("script")) one.remove(); // there are none, and none must run
        for (const [name, { at }] of news) if (at < last) news.delete(name); // the fetched page has it
        keepingPosition(() => {
          patch(page, fresh);
          draw();
        });
        settled();
      }
      if (again) waiting = setTimeout(fetchPart, fresh ? BETWEEN_FETCHES_MS : AFTER_FAILURE_MS);
    };
    request.send();
  }

  // A key identifies an element: a button must never turn into another one while a user presses it.
  const key = (node) => node.id || node.dataset.part || node.dataset.phase || node.getAttribute("action") || "";

  function alike(one, other) {
    if (one.nodeName !== other.nodeName) return false;
    return one.nodeType !== Node.ELEMENT_NODE || key(one) === key(other);
  }

  function patch(node, fresh) {
    if (node.nodeType !== Node.ELEMENT_NODE) {
      if (node.data !== fresh.data) node.data = fresh.data;
      return;
    }
    if (node.id === "jobqueue-live" || node.id === "jobqueue-told") return;
    if (node.id === "jobqueue-timeline") {
      for (const one of fresh.children) {
        const there = place(numbered(one), () => document.importNode(one, true));
        children(there, one);
      }
      return;
    }
    const named = (element) => [...element.attributes].filter((attribute) => attribute.name !== "open");
    for (const { name } of named(node)) if (!fresh.hasAttribute(name)) node.removeAttribute(name);
    for (const { name, value } of named(fresh)) if (node.getAttribute(name) !== value) node.setAttribute(name, value);
    children(node, fresh);
  }

  function children(node, fresh) {
    const wanted = [...fresh.childNodes];
    for (const child of [...node.childNodes]) if (!wanted.some((one) => alike(child, one))) removeChild(child);
    let next = node.firstChild;
    for (const one of wanted) {
      let found = next;
      while (found && !alike(found, one)) found = found.nextSibling;
      if (found) patch(found, one);
      else found = document.importNode(one, true);
      if (found === next) next = found.nextSibling;
      else node.insertBefore(found, next);
    }
    while (next) {
      const gone = next;
      next = next.nextSibling;
      gone.remove();
    }
  }

  // If the removed element had the focus, keep the focus near it, not at the top of the page.
  function removeChild(child) {
    const tools = child.contains(document.activeElement) ? document.activeElement.closest(".jq-verbs") : null;
    child.remove();
    if (tools) tools.focus({ preventScroll: true });
  }

  // The events ---------------------------------------------------------------------------------------------------------------

  let running = 0; // the position of the phase that runs
  let first = true;
  const words = () => page.querySelector(".jq-state .jq-badge").lastChild.textContent.trim();
  let status = words();

  // A new page was fetched: announce the status to screen readers, and stop if no more events can follow.
  function settled() {
    if (status === words()) return;
    status = words();
    put(find("jobqueue-told"), `Status: ${status}`);
    if (FINAL.includes(page.dataset.status)) {
      showMode("ended");
      setTimeout(stop, EPILOGUE_MS);
    }
  }

  function snapshot(job) {
    if (!job) {
      showMode("deleted");
      return;
    }
    keepingPosition(() => showNewest((job.events || []).map((event) => ({ ...event, event: event.name }))));
    note("progress", job.progress);
    note("message", job.outcome && job.outcome.message);
    (job.phases || []).forEach(notePhase);
    const changed = page.dataset.status !== job.status || page.dataset.attempt !== String(job.attempts && job.attempts.runs);
    if (changed || !first) refresh();
    first = false;
  }

  function progressed({ progress, message, phase_progress: percent, phase_message: text }) {
    note("progress", progress);
    note("message", message);
    note(`phase ${running} progress`, percent);
    note(`phase ${running} message`, text);
  }

  function receive(event) {
    const data = event.data || {};
    if (event.event === "jobqueue.snapshot") snapshot(data.job);
    if (!event.event.startsWith("job.")) return;
    keepingPosition(() => addEvent(event));
    if (event.event === "job.progress") {
      progressed(data);
      if (event.status === undefined || event.status === page.dataset.status) return;
    }
    if (event.event === "job.phase.started") notePhase({ position: data.position, status: "RUNNING", attempts: data.attempt });
    if (event.event === "job.phase.completed") notePhase({ position: data.position, status: "SUCCESS", progress: 100 });
    if (event.event === "job.deleted") showMode("deleted");
    else refresh();
  }

  // No event reports a line of the log.
  setInterval(() => {
    if (!document.hidden && page.dataset.status === "RUNNING" && page.querySelector(".jq-log")) refresh();
  }, LOG_MS);

  const stop = window.jobqueue.follow(page.dataset.events, receive, { mode: showMode });
})();
