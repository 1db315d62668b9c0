/* Keys on the pages of jobqueue. A key moves the focus, follows a link or selects a row; none presses a button, so nothing is done without
   what the button asks. They are off while text is typed, with a modifier, and if the user has switched them off. */
"use strict";

(function () {
  const STORED = "jobqueue.keys", PREFIX_MS = 5_000;
  const ROWS = ":is(#result_list, .jq-table) > tbody > tr, .jq-finding";
  const TYPING = "input:not([type=checkbox], [type=radio], [type=submit], [type=button]), textarea, select, [contenteditable]";
  const dialog = document.getElementById("jobqueue-keys"), opener = document.querySelector(".jq-keys");
  const search = document.getElementById("searchbar");
  if (!dialog || !opener) return;
  const choice = dialog.querySelector("input");
  let prefixUntil = 0; // after "g", until when a letter goes to a tab

  function stored(...value) {
    try {
      return value.length ? localStorage.setItem(STORED, value[0]) : localStorage.getItem(STORED);
    } catch {
      return null; // the browser keeps nothing for this site
    }
  }

  function update() {
    for (const [element, key] of [[opener, "?"], [search, "/"]]) {
      if (element && choice.checked) element.setAttribute("aria-keyshortcuts", key);
      else if (element) element.removeAttribute("aria-keyshortcuts");
    }
  }

  // On a keyboard without Latin letters, the place of the key counts.
  function keyOf(event) {
    if (event.key.length > 1 || event.key < "\u0080") return event.key;
    if (event.code === "Slash") return event.shiftKey ? "?" : "/";
    return event.code.startsWith("Key") && !event.shiftKey ? event.code[3].toLowerCase() : "";
  }

  const currentRow = () => document.activeElement.closest(ROWS);
  const linkOf = (row) => row.querySelector("th a[href]") || row.querySelector("a[href]");
  const boxOf = (row) => row && row.querySelector("input[type=checkbox]");
  const tab = (letter) => document.querySelector(`.jq-tabs a[data-go="${CSS.escape(letter)}"]`);

  function move(step) {
    const rows = [...document.querySelectorAll(ROWS)].filter((row) => linkOf(row) && row.getClientRects().length);
    const at = rows.indexOf(currentRow());
    const next = at < 0 ? rows[0] : rows[at + step];
    if (next) linkOf(next).focus();
  }

  function select() {
    const box = boxOf(currentRow());
    if (box) box.click();
  }

  // Move to the button of the row or of the page; on a list, choose the action for the selected rows, and move to its button.
  function reach(verb) {
    const row = currentRow(), name = `.jq-verb-${verb}`;
    const button = (row && row.querySelector(name)) || document.querySelector(`.jq-head ${name}`);
    const actions = document.querySelector(`#changelist-form select[name=action]:has(option[value="${verb}"])`);
    if (button) {
      button.focus();
    } else if (actions) {
      const box = boxOf(row);
      if (box && !document.querySelector("#changelist-form .action-select:checked")) box.click();
      actions.value = verb;
      actions.form.querySelector("button[name=index]").focus();
    }
  }

  function find() {
    if (search) {
      search.focus();
      search.select();
    } else if (tab("j")) {
      window.location.assign(`${tab("j").href}#searchbar`);
    }
  }

  const ACTS = {
    "/": find, j: () => move(1), k: () => move(-1), x: select, r: () => reach("resume"), c: () => reach("cancel"),
    g: () => { prefixUntil = Date.now() + PREFIX_MS; },
    "?": () => dialog.showModal(),
  };

  document.addEventListener("keydown", (event) => {
    const isModified = event.ctrlKey || event.metaKey || event.altKey || event.isComposing;
    if (!choice.checked || isModified || event.defaultPrevented || document.querySelector("dialog[open]")) return;
    if (event.target.closest(TYPING)) return;
    const key = keyOf(event), target = Date.now() < prefixUntil && key.length === 1 ? tab(key) : null;
    prefixUntil = 0;
    const box = event.target.matches("input[type=checkbox]") && boxOf(currentRow());
    // Enter on a link is the browser's own; on the checkbox of a row, it would submit the form of the list.
    const act = target ? () => target.click() : key === "Enter" && box ? () => linkOf(currentRow()).click() : ACTS[key];
    if (!act) return;
    event.preventDefault();
    act();
  });

  choice.checked = stored() !== "off";
  choice.addEventListener("change", () => {
    stored(choice.checked ? "on" : "off");
    update();
  });
  opener.hidden = false;
  opener.addEventListener("click", () => dialog.showModal());
  if (search && window.location.hash === "#searchbar") search.focus();
  update();
})();
