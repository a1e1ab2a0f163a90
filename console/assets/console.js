// The script of the console. Every page works without it. The script renews the part of a page that changes, counts ticked messages, previews
// a schedule while its form is filled in, adds buttons that copy a line, and handles keys.
"use strict";

(() => {
  const root = document.documentElement;
  root.classList.add("scripted");

  // --- The part that is renewed -------------------------------------------------------------------------------------

  const live = document.getElementById("live");
  const from = live && live.dataset.from;
  const every = 2000;
  let timer = 0;
  let asking = null;

  function later(wait) {
    clearTimeout(timer);
    if (from && !document.hidden) timer = setTimeout(renew, wait);
  }

  // renew asks for the part that is renewed, and then waits for two seconds, or for ten times as long as the answer took if that is longer.
  async function renew() {
    const began = performance.now();
    asking = new AbortController();
    const limit = setTimeout(() => asking.abort(), 15000);
    try {
      const answer = await fetch(from, { signal: asking.signal, headers: { Accept: "text/html" }, redirect: "manual" });
      if (answer.type === "opaqueredirect" || answer.status === 401 || answer.status === 404) {
        location.reload(); // the session has ended, or the message is no longer stored: the page says which
        return;
      }
      if (!answer.ok) throw new Error(String(answer.status));
      settle(live, parsed(await answer.text()));
      live.classList.toggle("old", live.querySelector(".asof.old") !== null);
    } catch (error) {
      live.classList.add("old"); // the part keeps its old values, and says as of when they are
    } finally {
      clearTimeout(limit);
      asking = null;
    }
    later(Math.max(every, 10 * (performance.now() - began)));
  }

  document.addEventListener("visibilitychange", () => {
    clearTimeout(timer);
    if (document.hidden) {
      if (asking) asking.abort();
    } else {
      later(0);
    }
  });
  later(every);

  // parsed returns the body of a document with this text. The tag in front keeps the space with which the text begins; otherwise the parser
  // would drop it, and the first child of live would find nothing like it.
  function parsed(text) {
    return new DOMParser().parseFromString("<body>" + text, "text/html").body;
  }

  // settle makes the children of old like those of fresh. It changes elements in place, so that these keep focus, selection and scroll, and
  // also what was typed, ticked and opened in them.
  function settle(old, fresh) {
    const byId = new Map();
    for (const child of old.children) if (child.id) byId.set(child.id, child);
    let at = old.firstChild;
    const drop = () => {
      const gone = at;
      at = at.nextSibling;
      gone.remove();
    };
    const all = [...fresh.childNodes];
    for (const [i, next] of all.entries()) {
      while (at && !all.slice(i).some((n) => alike(at, n))) drop(); // first of all, so that what stands behind it stays
      const known = next.id ? byId.get(next.id) : null;
      if (known && known !== at) old.insertBefore(known, at);
      const here = known || at;
      if (here && alike(here, next)) {
        if (here === at || known) at = here.nextSibling;
        update(here, next);
      } else {
        old.insertBefore(next, at);
      }
    }
    while (at) drop();
  }

  function alike(a, b) {
    return a.nodeType === b.nodeType && a.nodeName === b.nodeName && (a.id || "") === (b.id || "");
  }

  function update(here, next) {
    if (here.nodeType !== Node.ELEMENT_NODE) {
      if (here.data !== next.data) here.data = next.data;
      return;
    }
    if (here.isEqualNode(next)) return;
    const kept = new Set(here.matches("details, dialog") ? ["open"] : here.matches("input") ? ["value", "checked"] : []);
    if (here.matches("tr")) kept.add("class");
    for (const { name } of [...here.attributes]) {
      if (!kept.has(name) && !next.hasAttribute(name)) here.removeAttribute(name);
    }
    for (const { name, value } of next.attributes) {
      if (!kept.has(name) && here.getAttribute(name) !== value) here.setAttribute(name, value);
    }
    if (!here.matches("textarea, select")) settle(here, next);
  }

  // --- Ticked messages ----------------------------------------------------------------------------------------------

  const many = document.getElementById("many");
  function countTicked() {
    if (!many) return;
    const n = document.querySelectorAll("input[form=many]:checked").length;
    many.classList.toggle("some", n > 0);
    document.getElementById("ticked").textContent = n || "";
  }
  document.addEventListener("change", (e) => {
    if (e.target.matches("input.all")) {
      for (const box of document.querySelectorAll("input[form=many]")) box.checked = e.target.checked;
    }
    if (e.target.matches("input.all, input[form=many]")) countTicked();
  });
  countTicked();

  // --- A schedule in words, while it is typed -----------------------------------------------------------------------

  const form = document.querySelector("form[data-preview]");
  if (form) {
    let typed = 0;
    let wait = 0;
    const show = async () => {
      const mine = ++typed;
      const fields = new URLSearchParams();
      for (const [name, value] of new FormData(form)) {
        if (!/^(was_)?(csrf|body|headers)$/.test(name)) fields.append(name, value);
      }
      try {
        const answer = await fetch(form.dataset.preview + "?" + fields, { headers: { Accept: "text/html" }, redirect: "manual" });
        if (!answer.ok || mine !== typed) return;
        settle(live, parsed(await answer.text()));
      } catch {
        // the old preview stays; the button Preview of the form asks again
      }
    };
    form.addEventListener("input", () => {
      clearTimeout(wait);
      wait = setTimeout(show, 300);
    });
  }

  // --- Copying ------------------------------------------------------------------------------------------------------

  if (navigator.clipboard) {
    for (const line of document.querySelectorAll("pre.line")) {
      const button = document.createElement("button");
      button.className = "copy";
      button.type = "button";
      button.textContent = "⧉";
      button.setAttribute("aria-label", "Copy");
      button.addEventListener("click", async () => {
        await navigator.clipboard.writeText(line.querySelector("code").textContent);
        button.textContent = "✓";
      });
      line.prepend(button);
    }
  }

  // --- Keys ---------------------------------------------------------------------------------------------------------

  const help = document.getElementById("keys");
  const on = document.getElementById("keys-on");
  const remembered = "punctual-keys";
  try {
    on.checked = localStorage.getItem(remembered) !== "off";
  } catch {
    on.checked = true; // storage is not allowed
  }
  on.addEventListener("change", () => {
    try {
      localStorage.setItem(remembered, on.checked ? "on" : "off");
    } catch {
      // storage is not allowed, so the choice holds for this page alone
    }
  });

  const rows = () => [...document.querySelectorAll("table.rows tbody tr")];
  function move(step) {
    const all = rows();
    if (all.length === 0) return;
    const was = all.findIndex((r) => r.classList.contains("at"));
    const row = all[Math.min(Math.max(was + step, 0), all.length - 1)];
    if (was >= 0) all[was].classList.remove("at");
    row.classList.add("at");
    const link = row.querySelector("a");
    if (link) link.focus({ preventScroll: true });
    row.scrollIntoView({ block: "nearest" });
  }

  let going = false; // g was pressed
  document.addEventListener("keydown", (e) => {
    const field = e.target.closest("input:not([type=checkbox]), textarea, select, [contenteditable]");
    if (e.key === "Escape") {
      if (field) field.blur();
      for (const row of rows()) row.classList.remove("at");
      return;
    }
    if (field || help.open || e.ctrlKey || e.metaKey || e.altKey) return;
    if (e.key === "?") {
      help.showModal();
      return;
    }
    if (!on.checked) return;
    if (going) {
      going = false;
      const tab = document.querySelector(`.side nav a[data-key="${CSS.escape(e.key)}"]`);
      if (tab) tab.click();
      return;
    }
    const at = document.querySelector("table.rows tr.at");
    switch (e.key) {
      case "/":
        document.getElementById("jump").focus();
        break;
      case "j":
        move(1);
        break;
      case "k":
        move(-1);
        break;
      case "x": {
        const tick = at && at.querySelector("input[type=checkbox]");
        if (tick) tick.click();
        break;
      }
      case "g":
        going = true;
        setTimeout(() => { going = false; }, 1500);
        break;
      default:
        return;
    }
    e.preventDefault();
  });
})();
