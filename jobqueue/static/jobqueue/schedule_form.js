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

  function show() {
    const number = ++last;
    const data = new FormData();
    for (const name of [...names, "csrfmiddlewaretoken"]) {
      data.set(name, form.elements[name] ? form.elements[name].value : "");
    }
    const request = new XMLHttpRequest(); // it parses the answer into an inert document
    request.open("POST", preview.dataset.url);
    request.responseType = "document";
    request.setRequestHeader("X-Jobqueue-Part", "1");
    request.addEventListener("load", () => {
      const part = request.status === 200 && request.response; // after an error, the button still works
      if (part && number === last) preview.replaceChildren(...document.importNode(part.body, true).childNodes);
    });
    request.send(data);
  }

  form.addEventListener("input", function (event) {
    if (!names.includes(event.target.name)) return;
    clearTimeout(timer);
    timer = setTimeout(show, 300);
  });
  const isWrong = form.querySelector(names.map((name) => `.field-${name} .errorlist`).join()); // the form shows the reason itself
  if (!isWrong && names.some((name) => name !== "time_zone" && form.elements[name] && form.elements[name].value)) show();
})();
