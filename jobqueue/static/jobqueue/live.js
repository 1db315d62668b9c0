/* Keep the admin's page of one job as it is now, without loading it again.

   What changes often (progress, message, phases, new events) comes with the stream and is written as text. What changes with the status
   (the buttons, the report, the result, every word that a translator or a project may have changed) is asked of the server once more,
   as the same template makes it, and put in place of what is there, node by node: focus, scroll position and opened runs stay. */

(function () {
  "use strict";

  const page = document.getElementById("jobqueue-job");
  if (!page || !page.dataset.stream || !window.EventSource || !window.JobqueueStream) return;

  const WORDS = { live: "Live", reconnecting: "Reconnecting…", off: "Not live", ended: "Ended", deleted: "Deleted" };
  const PATIENCE = 2_000; // a short break is nothing to speak of
  const BETWEEN_LOOKS = 1_500, AFTER_FAILURE = 5_000, MOST_FAILURES = 5;
  const MOST_EVENTS = 500;
  const MINUTE = 60, HOUR = 3600, DAY = 86400;

  let job = null; // as the stream told it last
  let shown = [page.dataset.status, page.dataset.attempt]; // what of it the server's part of the page was made for
  let drawing = false, phasesSeen = 0;

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

  // The sign of the connection -----------------------------------------------------------------------------------------------

  let mode = "", soon = 0;

  function sign(name) {
    if (name === mode || mode === "deleted") return;
    const said = mode;
    mode = name;
    clearTimeout(soon);
    const write = () => {
      const node = find("jobqueue-live");
      node.dataset.mode = name;
      put(node, WORDS[name]);
    };
    if (name === "reconnecting" || (name === "live" && said === "off")) soon = setTimeout(write, name === "live" ? 0 : PATIENCE);
    else write();
  }

  // What the stream tells of the job -----------------------------------------------------------------------------------------

  function tell(now) {
    job = now;
    if (!drawing) requestAnimationFrame(draw);
    drawing = true;
    const made = [now.status, String(now.attempt), now.status_text, now.phase];
    if (shown.some((value, number) => value !== made[number])) look();
    if (shown.length > 2 && shown[2] !== made[2]) put(find("jobqueue-told"), `Status: ${now.status_text}`);
    shown = made;
  }

  function draw() {
    drawing = false;
    if (!job) return;
    const bar = find("jobqueue-progress");
    if (bar) {
      bar.value = job.progress;
      put(bar, `${job.progress} %`);
      put(find("jobqueue-percent"), `${job.progress} %`);
    }
    const message = find("jobqueue-message");
    put(message, job.message || "");
    message.hidden = !job.message;
    const rows = document.querySelectorAll("#jobqueue-phases tbody tr");
    const phases = job.phases || [];
    if (rows.length === phases.length) phases.forEach((phase, number) => drawPhase(rows[number], phase));
    else if (phasesSeen !== phases.length) look();
    phasesSeen = phases.length;
  }

  function drawPhase(row, phase) {
    const cell = (name) => row.querySelector(`[data-cell="${name}"]`);
    if (row.dataset.status !== phase.status) {
      row.dataset.status = phase.status;
      put(cell("status"), phase.status.charAt(0) + phase.status.slice(1).toLowerCase());
    }
    put(cell("progress"), `${phase.progress} %`);
    put(cell("message"), phase.message || "");
    put(cell("attempts"), String(phase.attempts));
  }

  // The timeline -------------------------------------------------------------------------------------------------------------

  const timeline = () => find("jobqueue-timeline");
  const numbered = (item) => Number(item.dataset.eventId);

  // The same words as jobqueue/admin/wording.py has.
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

  function told(data) {
    const words = (value) => (typeof value === "object" ? JSON.stringify(value) : String(value));
    const { message, ...rest } = data || {};
    const named = Object.entries(rest).filter(([, value]) => value !== null && value !== "");
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
    const text = told(event.data);
    if (text) made.append(" ", make("span", "jq-event-text", text));
    return made;
  }

  // Put an item where its number belongs; ids do not always become known in their order. One that is there already is not doubled.
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

  function happened(event) {
    if (typeof event.id !== "number" || typeof event.event !== "string") return;
    place(event.id, (before) => item(event, before));
    const none = page.querySelector(".jq-no-events");
    if (none) none.remove();
    if (event.event === "job.deleted") sign("deleted");
  }

  // Where nothing of what is shown is among the newest, there may be a gap: what is older is let go, as when the page is loaded.
  function caughtUp(events) {
    const list = timeline(), known = new Set(events.map((event) => event.id));
    const items = [...list.children];
    if (events.length && items.length && !items.some((one) => known.has(numbered(one)))) items.forEach((one) => one.remove());
    events.forEach(happened);
  }

  // What the server's template makes of the job ------------------------------------------------------------------------------

  let waiting = 0, asked = false, last = 0, failures = 0;

  function look() {
    if (waiting || asked) {
      waiting = waiting || -1; // once more, when the answer is there
      return;
    }
    waiting = setTimeout(ask, Math.max(0, last + BETWEEN_LOOKS - Date.now()));
  }

  function ask() {
    waiting = 0;
    asked = true;
    last = Date.now();
    const request = new XMLHttpRequest(); // it makes a document, in which nothing runs, of the answer by itself
    request.open("GET", location.pathname);
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
        become(page, fresh);
        draw();
      }
      if (again) waiting = setTimeout(ask, fresh ? BETWEEN_LOOKS : AFTER_FAILURE);
    };
    request.send();
  }

  // A key says what an element is about: a button must never become another one under somebody's finger.
  const key = (node) => node.id || node.dataset.part || node.dataset.phase || node.getAttribute("action") || "";

  function alike(one, other) {
    if (one.nodeName !== other.nodeName) return false;
    return one.nodeType !== Node.ELEMENT_NODE || key(one) === key(other);
  }

  function become(node, fresh) {
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
    for (const child of [...node.childNodes]) if (!wanted.some((one) => alike(child, one))) leave(child);
    let next = node.firstChild;
    for (const one of wanted) {
      let found = next;
      while (found && !alike(found, one)) found = found.nextSibling;
      if (found) become(found, one);
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

  // Who had the focus on a button that is gone goes on from where it was, not from the top of the page.
  function leave(child) {
    const tools = child.contains(document.activeElement) ? document.activeElement.closest(".jq-verbs") : null;
    child.remove();
    if (tools) tools.focus({ preventScroll: true });
  }

  // --------------------------------------------------------------------------------------------------------------------------

  new window.JobqueueStream(page.dataset.stream, {
    snapshot(data) {
      caughtUp(Array.isArray(data.events) ? data.events : []);
      if (data.job) tell(data.job);
    },
    state: tell,
    event: happened,
    mode(name) {
      sign(name);
      if (name === "ended") look();
    },
  }).open();
})();
