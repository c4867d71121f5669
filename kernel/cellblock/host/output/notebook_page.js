// Runs in the notebook's page, once, beside isolated outputs: their frames get the height of their
// content and the colours of what is around them.
//
// Everything that a frame says is hostile. One number is read of it, kept within bounds and given
// to the frame that said it; or the name of the library that the host wrote on that frame, which it
// then gets, once. Colours are all else that it hears. No more passes either way, so that frames
// stay as shut in as they are without this.
//
// A library comes from a script that the host wrote beside a frame, in one output of the notebook.
(() => {
  const installed = Symbol.for("cellblock.frames.2");
  if (window[installed]) return;
  const LEAST = 20;
  const MOST = MOST_HEIGHT;
  const CHANGES = 10; // of one frame's height, in a second
  const changes = new WeakMap();
  const frames = () => document.querySelectorAll("iframe.cellblock-frame");
  const pageIn = (frame) => (frame.contentWindow?.length ? frame.contentWindow[0] : null);

  const tell = (frame) => {
    const page = pageIn(frame);
    if (!page) return;
    let around = frame.parentElement;
    const { color } = getComputedStyle(around);
    let background = "";
    for (; around && /^(transparent|rgba\(.*, 0\)|)$/.test(background); around = around.parentElement) {
      background = getComputedStyle(around).backgroundColor;
    }
    if (!around) background = "#fff";
    const [r, g, b] = (background.match(/[\d.]+/g) ?? [255, 255, 255]).map(Number);
    const dark = background.startsWith("rgb") && 0.3 * r + 0.6 * g + 0.1 * b < 128;
    page.postMessage({ cellblock: { color, background, scheme: dark ? "dark" : "light" } }, "*");
  };

  const libraries = new Map(); // each by its name, packed
  const waiting = new Map(); // the frames' pages that wait for one
  const served = new WeakSet();
  const give = (page, library) => {
    if (served.has(page)) return;
    served.add(page);
    page.postMessage({ cellblock: { library, bytes: libraries.get(library) } }, "*");
  };
  const keep = (library, packed) => {
    if (libraries.has(library)) return;
    libraries.set(library, Uint8Array.from(atob(packed), (char) => char.charCodeAt(0)));
    for (const page of waiting.get(library) ?? []) give(page, library);
    waiting.delete(library);
  };
  Object.defineProperty(window, installed, { value: keep });
  const asked = (page, library) => {
    const frame = [...frames()].find((each) => pageIn(each) === page);
    if (frame?.dataset.cellblockLibrary !== library) return;
    if (libraries.has(library)) give(page, library);
    else waiting.set(library, (waiting.get(library) ?? new Set()).add(page));
  };

  window.addEventListener("message", (event) => {
    const said = event.data?.cellblock;
    if (typeof said?.library === "string") asked(event.source, said.library);
    if (!Number.isFinite(said)) return;
    for (const frame of frames()) {
      if (pageIn(frame) !== event.source) continue;
      const now = performance.now();
      const recent = (changes.get(frame) ?? []).filter((at) => now - at < 1000);
      if (recent.length >= CHANGES) return;
      changes.set(frame, [...recent, now]);
      if (recent.length === 0) tell(frame);
      frame.style.height = `${Math.min(Math.max(Math.ceil(said), LEAST), MOST)}px`;
    }
  });
  const tellAll = () => frames().forEach(tell);
  const later = () => { tellAll(); setTimeout(tellAll, 500); }; // its style sheet may come after its name
  const watched = { attributes: true, attributeFilter: ["class", "style", "data-jp-theme-name", "data-jp-theme-light"] };
  const observer = new MutationObserver(later);
  observer.observe(document.body, watched);
  observer.observe(document.documentElement, watched);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", later);
})()
