/* The form of a schedule: show its next times while it is edited. Without this file, a button opens them in a new tab. */
"use strict";

(function () {
  const preview = document.querySelector(".jq-preview");
  const form = preview && preview.closest("form");
  if (!form) return;
  const names = ["cron", "interval_seconds", "time_zone"];
  const field = form.querySelector(".field-cron");
  if (field) field.after(preview);
  preview.hidden = false;
  let timer = 0;
  let last = 0;

  async function show() {
    const number = ++last;
    const data = new FormData();
    for (const name of [...names, "csrfmiddlewaretoken"]) {
      data.set(name, form.elements[name] ? form.elements[name].value : "");
    }
    try {
      const response = await fetch(preview.dataset.url, {method: "POST", body: data, headers: {"X-Jobqueue-Part": "1"}});
      const text = await response.text();
      if (number === last && response.ok) preview.innerHTML = text;
    } catch {
      /* The button still works. */
    }
  }

  form.addEventListener("input", function (event) {
    if (!names.includes(event.target.name)) return;
    clearTimeout(timer);
    timer = setTimeout(show, 300);
  });
  if (names.some((name) => name !== "time_zone" && form.elements[name] && form.elements[name].value)) show();
})();
