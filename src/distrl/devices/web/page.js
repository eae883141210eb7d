// Runs in every page and frame before its own scripts. Offers `__distrl`: the elements of the screen, whether it is at rest,
// and typing. What it returns is data for the device; nothing in here ever evaluates a text.
(() => {
  if (Object.prototype.hasOwnProperty.call(window, "__distrl")) return;
  const POINTING = new Set(["click", "mousedown", "mouseup", "touchstart", "touchend", "pointerdown", "pointerup"]);
  const LARGE = 0.3, MOST_TEXT = 200, MOST_WORDS = 400, MOST_PARTS = 40, MANY_PARTS = 4;
  const FRAMES = 2, NO_FRAME_MS = 250, TICK_MS = 8, LONGEST_TIMER_MS = 600, SETS_MS = 150;
  const BUTTONS = new Set(["button", "submit", "reset", "image", "file", "color", "range"]);
  const PICKERS = new Set(["date", "time", "month", "datetime-local", "week"]);
  const TAPPED_ROLES = new Set(["button", "link", "tab", "checkbox", "radio", "menuitem", "menuitemradio", "menuitemcheckbox",
    "option", "switch", "treeitem", "combobox", "slider", "spinbutton"]);
  const STYLED = /[[\]:/]|(\S+\s+){3}/;  // classes that say how it looks, not what it is
  const SKIPPED = new Set(["SCRIPT", "STYLE", "NOSCRIPT", "TEMPLATE", "HEAD", "META", "LINK", "TITLE", "BASE"]);

  // --- what listens for touches --------------------------------------------------------------------------------------
  const listening = new WeakMap();
  const {addEventListener, removeEventListener} = EventTarget.prototype;
  EventTarget.prototype.addEventListener = function (kind, ...rest) {
    if (POINTING.has(kind) && this instanceof Element) listening.set(this, (listening.get(this) || 0) + 1);
    return addEventListener.call(this, kind, ...rest);
  };
  EventTarget.prototype.removeEventListener = function (kind, ...rest) {
    if (POINTING.has(kind) && listening.get(this) > 0) listening.set(this, listening.get(this) - 1);
    return removeEventListener.call(this, kind, ...rest);
  };

  // --- rest ----------------------------------------------------------------------------------------------------------
  let changes = 0;
  const note = () => { changes += 1; };
  const observer = new MutationObserver(note);
  const WATCHED = {childList: true, subtree: true, attributes: true, characterData: true};
  observer.observe(document, WATCHED);
  const {attachShadow} = Element.prototype;
  Element.prototype.attachShadow = function (options) {
    const root = attachShadow.call(this, options);
    if (options && options.mode === "closed") closed.set(this, root);
    observer.observe(root, WATCHED);
    return root;
  };
  const closed = new WeakMap();
  addEventListener.call(window, "scroll", note, {capture: true, passive: true});
  addEventListener.call(document, "input", note, {capture: true, passive: true});
  const {setTimeout, clearTimeout, clearInterval, requestAnimationFrame} = window;

  // What a touch sets off may come with a timer: a delayed answer, or what React holds back for 300 ms after a placeholder.
  const timers = new Map();  // those of the page that ring soon, and when they were set
  const clock = () => performance.timeOrigin + performance.now();
  let acted_at = clock();
  for (const kind of ["pointerdown", "touchstart", "keydown", "beforeinput"]) {
    addEventListener.call(window, kind, () => { acted_at = clock(); }, {capture: true, passive: true});
  }
  window.setTimeout = function (work, ms, ...rest) {
    if (typeof work !== "function" || Number(ms) > LONGEST_TIMER_MS) return setTimeout.call(window, work, ms, ...rest);
    const number = setTimeout.call(window, function (...passed) {
      timers.delete(number);
      return work.apply(this, passed);
    }, ms, ...rest);
    timers.set(number, clock());
    return number;
  };
  window.clearTimeout = (number) => { timers.delete(number); clearTimeout.call(window, number); };
  window.clearInterval = (number) => { timers.delete(number); clearInterval.call(window, number); };
  const in_frames = (ask) => {
    const told = [];
    for (let at = 0; at < window.length; at += 1) {
      try { told.push(ask(window[at].__distrl)); } catch { /* of another origin, or its script has not run yet */ }
    }
    return told;
  };
  const ringing = (until) => [...timers.values()].some((set) => set >= acted_at && set <= until)
    || in_frames((frame) => frame.ringing(until)).some(Boolean);

  const moving = () => document.getAnimations().some(
    (each) => each.playState === "running" && each.effect && each.effect.getComputedTiming().endTime < 5000);
  const watch = () => {
    // How often the page and the frames of its origin have changed so far. What moves changes all the time.
    if (moving()) note();
    return in_frames((frame) => frame.watch()).reduce((sum, each) => sum + each, changes);
  };
  const rest = (quiet_ms, settle_ms) => new Promise((done) => {
    const began = performance.now();
    let until = clock() + SETS_MS;  // timers set later are of a page that sets one after the other and changes nothing
    let seen = watch(), since = began, frames = 0;
    const draw = (wanted) => requestAnimationFrame(() => {
      if (wanted !== seen) return;
      frames += 1;
      if (frames < FRAMES) draw(wanted); else look();
    });
    let over = false;
    const look = () => {
      if (over) return;
      const sum = watch(), now = performance.now();
      if (sum !== seen) {
        seen = sum, since = now, frames = 0, until = clock() + SETS_MS;
        draw(seen);
      }
      const drawn = frames >= FRAMES || now - since > NO_FRAME_MS;
      const rested = drawn && now - since >= quiet_ms && document.readyState === "complete" && !ringing(until);
      over = rested || now - began > settle_ms;
      if (over) done(rested);
    };
    const tick = () => {
      look();
      if (!over) setTimeout(tick, TICK_MS);
    };
    draw(seen);
    tick();
  });
  // --- elements ------------------------------------------------------------------------------------------------------
  const words = (text) => (text || "").replace(/\s+/g, " ").trim().slice(0, MOST_TEXT);
  const role = (el) => (el.getAttribute("role") || "").toLowerCase();
  const kind_of = (el) => (el.tagName === "INPUT" ? (el.type || "text").toLowerCase() : "");
  const is_field = (el) => {
    if (el.tagName === "TEXTAREA" || el.isContentEditable) return true;
    const kind = kind_of(el);
    return kind !== "" && !BUTTONS.has(kind) && kind !== "checkbox" && kind !== "radio" && kind !== "hidden";
  };
  const is_native = (el) => {
    const tag = el.tagName;
    if (tag === "BUTTON" || tag === "SELECT" || tag === "TEXTAREA" || tag === "SUMMARY" || tag === "OPTION") return true;
    if (tag === "INPUT") return el.type !== "hidden";
    if (tag === "A" || tag === "AREA") return el.hasAttribute("href") || listening.get(el) > 0 || !!el.onclick;
    if (tag === "LABEL") return !!el.control;
    return el.isContentEditable && !(el.parentElement && el.parentElement.isContentEditable);
  };
  const is_root = (el) => el === document.body || el === document.documentElement;
  const listens = (el) => !is_root(el) && (listening.get(el) > 0 || !!el.onclick || !!el.onmousedown || !!el.ontouchstart);
  const is_touched = (el, style) => {
    if (is_native(el) || TAPPED_ROLES.has(role(el)) || listens(el)) return true;
    if (el.hasAttribute("tabindex") && el.tabIndex >= 0 && !is_root(el)) return true;
    if (el.hasAttribute("data-trigger")) return true;
    const parent = el.parentElement;
    return style.cursor === "pointer" && !is_root(el) && !(parent && getComputedStyle(parent).cursor === "pointer");
  };
  const root_of = (el) => el.shadowRoot || closed.get(el) || null;
  const children = (node) => (node.tagName === "SLOT" && node.assignedNodes().length ? node.assignedNodes() : node.childNodes);

  const own_text = (el) => {
    let text = "";
    for (const node of children(el)) if (node.nodeType === 3) text += " " + node.data;
    return words(text);
  };
  const whole_text = (el) => {
    const root = root_of(el);
    return words((root ? root.textContent : "") || (el.innerText === undefined ? el.textContent : el.innerText));
  };
  const label_of = (el) => {
    const by = el.getAttribute("aria-labelledby");
    const named = by ? by.split(/\s+/).map((id) => (el.getRootNode().getElementById || (() => null)).call(el.getRootNode(), id)) : [];
    const text = named.filter(Boolean).map((each) => each.textContent).join(" ");
    const image = el.querySelector ? el.querySelector("img[alt], svg title") : null;
    const labels = el.labels && el.labels.length ? [...el.labels].map((each) => each.innerText).join(" ") : "";
    return words(el.getAttribute("aria-label") || text || labels || el.getAttribute("title") || el.getAttribute("alt")
      || el.getAttribute("placeholder") || (image && (image.getAttribute("alt") || image.textContent)) || "");
  };
  const names_of = (el) => {
    const classes = typeof el.className === "string" ? el.className : (el.className && el.className.baseVal) || "";
    const named = el.getAttribute("name") || el.id || el.getAttribute("data-trigger") || (STYLED.test(classes) ? "" : classes);
    return words(named).slice(0, 60);
  };
  const row_of = (el) => {
    // What stands before a switch or an icon in the same row says what it is for.
    if (el.getBoundingClientRect().left < innerWidth / 2) return "";
    for (let node = el.parentElement, steps = 0; node && steps < 3; node = node.parentElement, steps += 1) {
      const text = words(node.innerText);
      if (text) return text.length <= 60 ? text : "";
    }
    return "";
  };
  const before_of = (el) => {
    // The word that stands before a field in the same line is what people read as its label.
    for (let node = el.previousSibling, steps = 0; node && steps < 4; node = node.previousSibling, steps += 1) {
      const text = words(node.textContent);
      if (text) return text.length <= 40 ? text : "";
    }
    return "";
  };
  const class_of = (el) => {
    const tag = el.tagName, kind = kind_of(el), as = role(el);
    if (is_field(el)) return "EditText";
    if (kind === "checkbox" || as === "checkbox") return "CheckBox";
    if (kind === "radio" || as === "radio") return "RadioButton";
    if (as === "switch") return "Switch";
    if (as === "tab") return "Tab";
    if (tag === "SELECT" || as === "combobox") return "Spinner";
    if (tag === "OPTION" || tag === "LI" || as === "option" || as === "menuitem" || as === "treeitem") return "ListItem";
    if (tag === "BUTTON" || as === "button" || BUTTONS.has(kind)) return "Button";
    if (tag === "A" || as === "link") return "Link";
    if (/^H[1-6]$/.test(tag) || as === "heading") return "Heading";
    if (tag === "IMG" || tag === "CANVAS" || tag === "svg" || tag === "IMAGE") return "ImageView";
    if (tag === "PROGRESS" || as === "progressbar") return "ProgressBar";
    return own_text(el) ? "TextView" : "View";
  };

  const rectangle = (el) => {
    // Of what runs over several lines, the widest piece: the middle of the whole may be outside of it.
    const whole = el.getBoundingClientRect();
    const pieces = el.getClientRects();
    if (pieces.length < 2 || getComputedStyle(el).display !== "inline") return whole;
    return [...pieces].reduce((best, each) => (each.width > best.width ? each : best));
  };
  const within = (rect, box) => {
    const left = Math.max(rect.left, box.left), top = Math.max(rect.top, box.top);
    const right = Math.min(rect.right, box.right), bottom = Math.min(rect.bottom, box.bottom);
    return right - left >= 1 && bottom - top >= 1 ? {left, top, right, bottom} : null;
  };
  const inside = (inner, outer) => {
    for (let node = inner; node; node = node.parentNode || node.host) if (node === outer) return true;
    return false;
  };
  const at_point = (x, y) => {
    let found = document.elementFromPoint(x, y), root = found && root_of(found);
    while (root) {
      const deeper = root.elementFromPoint(x, y);
      if (!deeper || deeper === found) break;
      found = deeper;
      root = root_of(found);
    }
    return found;
  };
  const is_visible = (el, box) => {
    const hit = at_point((box.left + box.right) / 2, (box.top + box.bottom) / 2);
    if (!hit) return false;
    if (hit === el || inside(hit, el)) return true;
    if (el.tagName === "OPTION") return hit.tagName === "SELECT" && inside(el, hit);
    if (getComputedStyle(el).pointerEvents === "none") return inside(el, hit);
    return hit.tagName === "LABEL" && hit.control === el;
  };

  const scrolls = (el, style) => /(auto|scroll)/.test(style.overflowY + style.overflowX)
    && (el.scrollHeight > el.clientHeight + 1 || el.scrollWidth > el.clientWidth + 1);
  const leaves = (el, style, clipper) => {
    // A dialog written inside a list lies over all of the screen: what cuts off the list does not cut it off.
    if (style.position === "fixed") return true;
    if (style.position !== "absolute" || !clipper) return style.position === "absolute";
    const holder = el.offsetParent;
    return !holder || (holder !== clipper && holder.contains(clipper));
  };
  const active = () => {
    let found = document.activeElement;
    for (let root = found && root_of(found); root && root.activeElement; root = found && root_of(found)) found = root.activeElement;
    return found;
  };

  const look = (most, skip) => {
    const screen = {left: 0, top: 0, right: innerWidth, bottom: innerHeight};
    const area = Math.max(1, innerWidth * innerHeight);
    const skipped = skip ? new Set(document.querySelectorAll(skip)) : new Set();
    const found = [], frames = [], focused = active();
    let drawn = 0;  // of how all that can be touched is styled: a switch may say in no other way that it was turned

    const add = (el, box, facts) => {
      const text = facts.text, label = label_of(el);
      const disabled = el.disabled === true || el.getAttribute("aria-disabled") === "true";
      if (facts.touched) drawn = styled(el, drawn);
      const pressed = el.getAttribute("aria-checked") || el.getAttribute("aria-selected");
      const checked = "checked" in el && /^(checkbox|radio)$/.test(kind_of(el)) ? el.checked
        : el.tagName === "OPTION" ? el.selected : pressed === "true" ? true : pressed === "false" ? false : null;
      let description = label === text ? "" : label;
      if (facts.touched && is_field(el) && !description) description = before_of(el) || names_of(el);
      if (facts.touched && !text && !description) {
        const named = names_of(el);
        description = words(el.hasAttribute("data-trigger") || !named ? `${row_of(el)} ${named}` : named);
      }
      found.push([box.left, box.top, box.right, box.bottom, text, description.replace(/[_-]+/g, " "), class_of(el), el.id || "",
        facts.touched && !disabled, facts.scrolls, checked, el === focused && is_field(el), !disabled]);
    };

    const styled = (el, hash) => {
      // A row that is touched as a whole shows what it was set to on a part of it.
      for (const part of [el, ...[...el.querySelectorAll("*")].slice(0, MOST_PARTS)]) {
        const style = `${part.getAttribute("class") || ""} ${part.getAttribute("style") || ""}`;
        for (let at = 0; at < style.length; at += 1) hash = (hash * 31 + style.charCodeAt(at)) | 0;
      }
      return hash;
    };

    const walk = (node, clip, held, clipper = null) => {
      if (found.length >= most || node.nodeType !== 1 || SKIPPED.has(node.tagName) || skipped.has(node)) return;
      const style = getComputedStyle(node);
      if (style.display === "none") return;
      const rect = node.tagName === "SLOT" || style.display === "contents" ? null : rectangle(node);
      const bounds = leaves(node, style, clipper) ? screen : clip;
      const box = rect && within(rect, bounds);
      const hides = rect && style.overflow !== "visible" && style.overflow !== "" && !is_root(node);
      const inner = hides ? within(node.getBoundingClientRect(), bounds) : bounds;
      if (hides && !inner) return;
      if (node.tagName === "IFRAME" || node.tagName === "FRAME") {
        if (box) frames.push({node, box, offset: node.getBoundingClientRect()});
        return;
      }
      let within_touched = held;
      if (box && style.visibility === "visible" && Number(style.opacity) > 0.02) {
        const touched = is_touched(node, style) && !is_root(node);
        const large = (rect.width * rect.height) / area > LARGE && !is_native(node);
        const delegates = touched && large && node.childElementCount > 0;
        const moves = scrolls(node, style) && !is_root(node);
        const option = node.tagName === "OPTION";
        const direct = own_text(node);
        const text = touched && !delegates ? text_of(node) : "";
        if (touched && !delegates && !text && holds_parts(node)) {
          within_touched = "";  // a frame round what can be touched by itself
        } else if (touched && !delegates) {
          if (option ? node.parentElement.size > 1 || node.parentElement.multiple : true) {
            if (is_visible(node, box)) add(node, box, {text, touched: true, scrolls: moves});
          }
          within_touched = "whole";
        } else if ((direct || node.tagName === "IMG") && held !== "whole" && is_visible(node, box)) {
          const tapped = held === "parts" || (delegates && !node.childElementCount);
          add(node, box, {text: direct, touched: tapped, scrolls: moves});
        } else if (moves && is_visible(node, box)) {
          add(node, box, {text: "", touched: false, scrolls: true});
        }
        if (delegates && count_parts(node) < MANY_PARTS) within_touched = "parts";
        if (node.tagName === "SELECT" && node.size <= 1 && !node.multiple) return;
      }
      const root = root_of(node);
      for (const child of root ? root.childNodes : children(node)) walk(child, inner, within_touched, hides ? node : clipper);
    };

    // A screen that listens as a whole and has many parts that listen by themselves is not touched at its texts.
    const count_parts = (el) => [...el.querySelectorAll("*")].filter((each) => is_native(each) || listens(each)).length;
    const holds_parts = (el) => !is_native(el) && [...el.querySelectorAll("*")].slice(0, 60).some(
      (each) => is_native(each) || listens(each) || TAPPED_ROLES.has(role(each)));
    const text_of = (el) => {
      if (is_field(el)) return words(el.isContentEditable ? el.innerText : kind_of(el) === "password" ? "•".repeat(el.value.length) : el.value);
      if (el.tagName === "SELECT") return words([...el.selectedOptions].map((each) => each.text).join(", "));
      if (el.tagName === "INPUT") {
        if (BUTTONS.has(kind_of(el))) return words(el.value);
        return label_of(el) || after_of(el);
      }
      if (el.tagName === "OPTION") return words(el.text);
      // What holds touchable parts of its own says only its own words: the parts speak for themselves.
      const parts = el.querySelector("a[href],button,input,select,textarea,[role=button],[onclick]");
      return parts && el.tagName !== "LABEL" ? own_text(el) : whole_text(el).split(" ").slice(0, MOST_WORDS).join(" ");
    };
    const after_of = (el) => {
      for (let node = el.nextSibling, steps = 0; node && steps < 2; node = node.nextSibling, steps += 1) {
        const text = words(node.textContent);
        if (text) return text.length <= 60 ? text : "";
      }
      return "";
    };

    if (document.documentElement) walk(document.documentElement, screen, "");
    let foreign = 0;
    for (const frame of frames) {
      let inner = null;
      try { inner = frame.node.contentWindow && frame.node.contentDocument && frame.node.contentWindow.__distrl; } catch { inner = null; }
      if (!inner) { foreign += 1; continue; }
      for (const each of inner.look(most - found.length, "").elements) found.push(shifted(each, frame));
    }
    if (!found.length && !frames.length && document.body && document.body.childElementCount) {
      // A page that is one picture, such as of a book: a person would touch its middle.
      found.push([0, 0, innerWidth, innerHeight, "", "", "View", "", true, false, null, false, true]);
    }
    return {elements: found.filter(Boolean), foreign, width: innerWidth, height: innerHeight, title: words(document.title), changes: watch(), drawn};
  };
  const shifted = (each, frame) => {
    const border = {x: frame.node.clientLeft, y: frame.node.clientTop};
    const dx = frame.offset.left + border.x, dy = frame.offset.top + border.y;
    const box = within({left: each[0] + dx, top: each[1] + dy, right: each[2] + dx, bottom: each[3] + dy}, frame.box);
    return box ? [box.left, box.top, box.right, box.bottom, ...each.slice(4)] : null;
  };

  // --- typing --------------------------------------------------------------------------------------------------------
  const set_value = (el, value) => {
    const setter = Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value").set;
    setter.call(el, value);
    if (el.value !== value) return false;
    for (const kind of ["input", "change"]) el.dispatchEvent(new Event(kind, {bubbles: true}));
    return true;
  };
  const two = (number) => String(number).padStart(2, "0");
  const picked = (kind, text) => {
    const date = /^(\d{1,2})\/(\d{1,2})\/(\d{4})$/.exec(text), time = /^(\d{1,2}):(\d{2})\s*([AP]M)?$/i.exec(text);
    if (kind === "date" && date) return `${date[3]}-${two(date[1])}-${two(date[2])}`;
    if (kind === "time" && time) {
      const hour = time[3] ? (Number(time[1]) % 12) + (/p/i.test(time[3]) ? 12 : 0) : Number(time[1]);
      return `${two(hour)}:${time[2]}`;
    }
    return text;
  };
  const prepare = (text) => {
    // "keys": the browser types it over what is selected now. "done": it was set. Anything else: why it cannot be typed.
    const el = active();
    if (el && (el.tagName === "IFRAME" || el.tagName === "FRAME")) {
      try { return el.contentWindow.__distrl.prepare(text); } catch { return "keys"; }
    }
    if (!el || !is_field(el)) return "no field is focused";
    if (el.disabled || el.readOnly) return "the field cannot be changed";
    if (PICKERS.has(kind_of(el))) return set_value(el, picked(kind_of(el), text)) ? "done" : "the field takes no such text";
    if (el.isContentEditable) document.execCommand("selectAll", false);
    else el.select();
    return "keys";
  };

  // --- choosing from a list ------------------------------------------------------------------------------------------
  // The browser draws the list of a <select> outside of the page, where no picture and no tap reaches it.
  let picker = null;
  const shut = () => { if (picker) { picker.remove(); picker = null; } };
  const choose = (select, option) => {
    shut();
    if (option.disabled || select.value === option.value && select.selectedIndex === option.index) return;
    select.selectedIndex = option.index;
    for (const kind of ["input", "change"]) select.dispatchEvent(new Event(kind, {bubbles: true}));
  };
  const open_picker = (select) => {
    shut();
    picker = document.createElement("div");
    picker.setAttribute("role", "listbox");
    picker.style.cssText = "position:fixed;inset:4%;z-index:2147483647;background:#fff;color:#111;overflow:auto;"
      + "border:1px solid #666;border-radius:4px;font:13px sans-serif;box-shadow:0 2px 12px #0006;text-align:left";
    for (const option of select.options) {
      const row = document.createElement("div");
      row.setAttribute("role", "option");
      row.setAttribute("aria-selected", String(option.selected));
      row.style.cssText = `padding:5px 8px;cursor:pointer;${option.selected ? "background:#dde7ff" : ""}`;
      row.textContent = option.text;
      addEventListener.call(row, "click", (event) => { event.stopPropagation(); choose(select, option); });
      picker.append(row);
    }
    (document.body || document.documentElement).append(picker);
  };
  addEventListener.call(document, "mousedown", (event) => {
    const select = event.target instanceof Element && event.target.closest("select");
    if (select && select.size <= 1 && !select.multiple && !select.disabled) {
      event.preventDefault();
      select.focus();
      setTimeout(() => open_picker(select), 0);
    } else if (picker && !picker.contains(event.target)) {
      shut();
    }
  }, true);
  const shut_picker = () => { const was = picker !== null; shut(); return was; };

  Object.defineProperty(window, "__distrl", {value: Object.freeze({look, rest, watch, ringing, prepare, shut_picker}), enumerable: false});
})();
