// Runs first in the inner frame of an isolated output, then writes the guest's page.
//
// Invariant: there is no second realm. What is taken from this window a script can get afresh only
// from another one, and that takes an iframe (with srcdoc: no address is let through). Elements
// come from createElement and createDocument, from markup, or from XSLT. The first pass here;
// markup too, because trusted types make every road to the parser ask the policy below; XSLT and
// requests, whose answers are parsed unseen, are gone. So what is taken stays taken.
//
// Taken, because no content-security policy holds it in browsers of 2026: WebRTC; <link>, which
// connects and resolves names ahead of need; <meta>, which goes elsewhere.
//
// The page may change every prototype. Functions that decide use what is captured here, own
// properties and operators only: no method call, no spread, no iteration.
(packed, library) => {
  "use strict";
  const banned = "iframe|frame|frameset|link|meta|base|object|embed|applet|fencedframe|portal|webview";
  const NAME = new RegExp(`^(?:[^:]*:)?(${banned})$`, "i");
  const TAG = new RegExp(`<(/?)(?=(?:[^\\s<>/:]+:)?(?:${banned})(?![^\\s/>]))`, "gi");
  const ENTITY = /<!ENTITY/i;
  const { apply } = Reflect;
  const { exec } = RegExp.prototype;
  const { lastIndexOf, slice } = String.prototype;
  const text = String;

  // Banned tags become elements of no meaning. An entity could spell one that is not seen.
  const inert = (markup) => {
    const source = text(markup);
    if (apply(exec, ENTITY, [source]) !== null) return "";
    let safe = "";
    let at = 0;
    TAG.lastIndex = 0;
    for (let tag; (tag = apply(exec, TAG, [source])) !== null; at = TAG.lastIndex) {
      safe += apply(slice, source, [at, tag.index]) + "<" + tag[1] + "x-";
    }
    return safe + apply(slice, source, [at]);
  };
  const harmless = (name) => {
    const full = text(name);
    const found = apply(exec, NAME, [full]);
    return found === null ? full : "x-" + found[1];
  };
  // One chunk of markup can't leave a tag for the next one to finish.
  const whole = (chunks, end) => {
    let source = "";
    for (let i = 0; i < chunks.length; i += 1) source += text(chunks[i]);
    const open = apply(lastIndexOf, source, ["<"]);
    if (open > apply(lastIndexOf, source, [">"])) {
      source = apply(slice, source, [0, open]) + "&lt;" + apply(slice, source, [open + 1]);
    }
    return inert(source + end);
  };

  const wrap = (holder, name, make) => {
    const found = Object.getOwnPropertyDescriptor(holder, name);
    if (found) Object.defineProperty(holder, name, { ...found, value: make(found.value) });
  };
  const unset = (holder, unwanted) => {
    for (const name of Object.getOwnPropertyNames(holder)) if (unwanted(name)) delete holder[name];
  };

  unset(window, (name) => /RTCPeerConnection$|^(?:XSLTProcessor|PaymentRequest|Presentation)/.test(name));
  // Younger roads to the parser, whatever they are called.
  const known = ["innerHTML", "outerHTML", "insertAdjacentHTML", "getHTML"];
  for (const holder of [Element.prototype, ShadowRoot.prototype, Document, Document.prototype]) {
    unset(holder, (name) => /html/i.test(name) && !known.includes(name));
  }

  window.trustedTypes?.createPolicy("default", {
    createHTML: inert,
    createScript: (script, _, sink) => (sink === "Location href" ? null : script),
    createScriptURL: (url) => url,
  });
  wrap(Document.prototype, "createElement", (create) => function createElement(name) {
    return apply(create, this, [harmless(name)]);
  });
  wrap(Document.prototype, "createElementNS", (create) => function createElementNS(space, name) {
    return apply(create, this, [space, harmless(name)]);
  });
  wrap(DOMImplementation.prototype, "createDocument", (create) => function createDocument(space, name) {
    return apply(create, this, [space, name === null ? null : harmless(name)]);
  });
  // Without its third argument: that makes elements of a known kind under another name.
  wrap(CustomElementRegistry.prototype, "define", (define) => function (name, made) {
    return apply(define, this, [name, made]);
  });

  // From here on for people's sake only; nothing rests on it.

  // A link that leads away would leave an empty frame behind.
  const stay = (event) => {
    for (const node of event.composedPath()) {
      const href = node.localName === "a" ? node.getAttribute("href") ?? node.getAttribute("xlink:href") : null;
      if (href !== null && href[0] !== "#") event.preventDefault();
    }
  };
  const listen = () => window.addEventListener("click", stay, true);
  for (const [name, end] of [["write", ""], ["writeln", "\n"]]) {
    wrap(Document.prototype, name, (write) => function (...chunks) {
      apply(write, this, [whole(chunks, end)]);
      listen();
    });
  }
  wrap(Document.prototype, "open", (open) => function () {
    const opened = apply(open, this, []);
    listen();
    return opened;
  });

  // Typing goes where the user put it.
  for (const holder of [HTMLElement.prototype, SVGElement.prototype, window]) {
    wrap(holder, "focus", (focus) => function (...options) {
      if (document.hasFocus() || navigator.userActivation?.isActive) apply(focus, this, options);
    });
  }

  // What a page asked for and did not get is said above it.
  const missed = new Set();
  const report = (event) => {
    if (!/^(?:script|style|img|connect)/.test(event.effectiveDirective) || !/^https?:/.test(event.blockedURI)) return;
    missed.add(new URL(event.blockedURI).host);
    let bar = document.getElementById("cellblock-missed");
    if (!bar) {
      bar = document.createElement("div");
      bar.id = "cellblock-missed";
      bar.style.cssText = "font:12px/1.4 system-ui,sans-serif;color:#5f4b00;background:#fff6d6;padding:4px 8px";
      document.documentElement.prepend(bar);
    }
    bar.textContent = `Not loaded, because output has no network: ${[...missed].slice(0, 5).join(", ")}`;
  };

  // The notebook's page is told how high the content is, and tells its colours (notebook_page.js).
  const notebook = parent.parent;
  const root = () => document.documentElement;
  const tell = (height) => notebook.postMessage({ cellblock: height }, "*");
  let [initial, viewport, shrinking, overflows] = [0, 0, 0, 3];
  let [together, follows] = [0, false];
  // Content that is all out of the flow fills its frame.
  const fills = () => document.body?.offsetHeight === 0
    && [...document.body.querySelectorAll("*")].some((each) => each.getBoundingClientRect().height > 0);
  const measure = () => {
    if (fills()) return;
    const height = root().offsetHeight + (root().scrollWidth > window.innerWidth ? 16 : 0);
    clearTimeout(shrinking);
    if (viewport === 0) {
      initial = viewport = window.innerHeight; // the frame itself is laid out only now
      follows = height === viewport;
    }
    together = window.innerHeight === viewport ? 0 : together + 1;
    if (together > 1 && !follows) {
      follows = true; // half as high as its frame, say: it would shrink to nothing
      tell(initial);
    } else if (!follows) {
      // What is not drawn yet has no height: shrink once it had time to.
      if (height > viewport) tell(height);
      else shrinking = setTimeout(tell, 200, height);
    }
  };
  const follow = () => {
    new ResizeObserver(measure).observe(root());
    // Comes after the observer's call, where the content has changed with its frame.
    window.addEventListener("resize", () => {
      viewport &&= window.innerHeight;
      const height = root().scrollHeight;
      // A few times only: a bit higher than its frame, it would grow for ever.
      if (viewport > 0 && height > viewport && !follows && (overflows -= 1) >= 0) tell(height);
    });
    window.addEventListener("message", ({ source, data }) => {
      if (source !== notebook || !data?.cellblock) return;
      const { color, background, scheme } = data.cellblock;
      const style = document.getElementById("cellblock-theme");
      if (style) style.textContent = `html{background:${background};color:${color};color-scheme:${scheme}}`;
    });
  };

  const unpack = (bytes) => {
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
    return new Response(stream).text();
  };
  // Asked for again and again: the output that has it may come later.
  const arrived = new Promise((resolve) => {
    if (library === "") {
      resolve("");
      return;
    }
    const ask = () => notebook.postMessage({ cellblock: { library } }, "*");
    const asking = setInterval(ask, 500);
    const late = setTimeout(() => {
      document.documentElement.textContent = "This figure waits for its library, which is beside another"
        + " figure of this notebook. If that one is gone, restart the kernel and run the notebook again.";
    }, 3000);
    window.addEventListener("message", ({ source, data }) => {
      if (source !== notebook || data?.cellblock?.library !== library) return;
      clearInterval(asking);
      clearTimeout(late);
      resolve(unpack(data.cellblock.bytes));
    });
    ask();
  });
  const bytes = Uint8Array.from(atob(packed), (char) => char.charCodeAt(0));
  Promise.all([unpack(bytes), arrived]).then(([page, script]) => {
    document.open();
    document.addEventListener("securitypolicyviolation", report);
    document.write(`<!doctype html><style id="cellblock-theme">html{background:#fff;color:#1f1f1f;`
      + `color-scheme:light}</style><style>html{font:14px system-ui,sans-serif}body{margin:4px}</style>`
      + `<body>`);
    if (script !== "") {
      const element = document.createElement("script");
      element.textContent = script;
      document.body.append(element);
    }
    document.write(page);
    document.close();
    follow();
  });
}
