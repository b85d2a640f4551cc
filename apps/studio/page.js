() => {
  // gradio asks for pictures only when they come near the window; those of a job are few, and
  // whoever scrolls, prints or captures the page should find them there. They are named by what
  // they show: arm, words and caption.
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const look = image => {
    if (image.loading === "lazy") image.loading = "eager";
    if (image.tagName === "VIDEO" && !image.controls && !image.loop && !still) {
      image.muted = image.loop = image.playsInline = true; // in the row; one that is opened waits
      image.play().catch(() => {});
    }
    const title = image.closest(".column")?.querySelector("h3.arm");
    if (!title) return;
    const caption = image.closest("button")?.querySelector(".caption-label")?.innerText ?? "";
    const said = [title.innerText, title.dataset.words, caption].filter(Boolean).join(", ");
    const name = image.tagName === "VIDEO" ? "aria-label" : "alt";
    if (image.getAttribute(name) !== said) image.setAttribute(name, said);
  };
  const mark = caption => { // of a picture that is selected (history_parts.py)
    caption.closest("button").toggleAttribute("data-marked", caption.innerText.startsWith("✓"));
  };
  // Where the form is long, a job that begins brings its line into the window, and what comes
  // below it, until somebody scrolls; the box with its Stop stays in sight (style.css).
  const seen = element => element !== null && element.offsetParent !== null;
  const running = { "": false, "edit-": false };
  let following = false;
  for (const kind of ["wheel", "touchmove", "pointerdown"]) {
    document.addEventListener(kind, () => { following = false; }, { passive: true, capture: true });
  }
  const follow = () => {
    for (const prefix in running) {
      const runs = seen(document.querySelector(`#${prefix}stop`));
      const line = document.querySelector(`#${prefix}status`);
      const top = line?.getBoundingClientRect().top ?? 0;
      if (runs && !running[prefix]) following = top > innerHeight - 120;
      if (runs && following && top > 160) line.scrollIntoView({ block: "start" });
      running[prefix] = runs;
    }
  };
  // What was typed is there again when the page is loaded anew: it does that by itself when the
  // studio was started again. Each box is filled once, when it first appears, and kept from then on.
  const written = ["prompt", "edit-instruction", "edit-shows"];
  const filled = new Set();
  const box = id => document.querySelector(`#${id} textarea, #${id} input`);
  const key = id => `t2x-studio-${id}`;
  const fill = () => {
    for (const id of written) {
      const found = filled.has(id) ? null : box(id);
      if (!found) continue;
      filled.add(id);
      const text = sessionStorage.getItem(key(id));
      if (!text || found.value) continue;
      found.value = text;
      found.dispatchEvent(new Event("input", { bubbles: true }));
    }
  };
  const keep = () => {
    for (const id of filled) {
      const found = box(id);
      if (found) sessionStorage.setItem(key(id), found.value);
    }
  };
  document.addEventListener("input", keep);
  window.addEventListener("pagehide", keep); // what came from an example, or another tab

  let due = false;
  const later = () => {
    if (due) return;
    due = true;
    requestAnimationFrame(() => {
      due = false;
      document.querySelectorAll(".arms img, .arms video").forEach(look);
      follow();
      document.querySelectorAll("#history-gallery .caption-label").forEach(mark);
      fill();
    });
  };
  new MutationObserver(later).observe(document.body, {
    subtree: true, childList: true, characterData: true,
  });
  later();

  // Escape closes what is open (gradio does that); with nothing open it stops the job in sight.
  const open = ".arms .preview, ul.options, [role=listbox]";
  document.addEventListener("keydown", event => {
    if (event.key !== "Escape" || event.defaultPrevented) return;
    if ([...document.querySelectorAll(open)].some(seen)) return;
    [...document.querySelectorAll("#stop, #edit-stop")].find(seen)?.click();
  }, { capture: true });
}
