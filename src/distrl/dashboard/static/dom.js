// Elements are made here and nowhere else: text is always text (textContent), so nothing that a device or a model says is ever markup.

/** An HTML element: `h("a.row", {href, onclick}, "text", child)`. */
export function h(name, props = {}, ...children) {
  const [tag, ...classes] = name.split(".");
  return fill(document.createElement(tag), classes, props, children);
}

/** An SVG element. */
export function s(name, props = {}, ...children) {
  const [tag, ...classes] = name.split(".");
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), classes, props, children);
}

function fill(element, classes, props, children) {
  for (const one of classes) element.classList.add(one);
  for (const [key, value] of Object.entries(props || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "style") for (const [name, set] of Object.entries(value)) element.style.setProperty(name, set);
    else if (key === "href" && !safe(value)) continue;
    else if (typeof value === "boolean" && key in element) element[key] = value;
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  element.append(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false).map(String_or_node));
  return element;
}

const String_or_node = (child) => (child instanceof Node ? child : document.createTextNode(String(child)));
const safe = (address) => /^(\/(?!\/)|#|\?)/.test(address);

/** Put these in place of what an element holds. */
export function put(element, ...children) {
  element.replaceChildren(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false).map(String_or_node));
  return element;
}

/** The text of an element that holds text alone; left as it is where nothing changed, so that the browser has nothing to do. */
export function tell(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export const link = (href, props, ...children) => h("a", { href, "data-link": true, ...props }, ...children);

// --- numbers and times -------------------------------------------------------------------------------------------

export const percent = (share, digits = 1) => (share === null || share === undefined ? "–" : `${(100 * share).toFixed(digits)} %`);
export const count = (number) => Math.round(number).toLocaleString("en").replaceAll(",", "\u2009");
export function short(number) {
  if (number === null || number === undefined || Number.isNaN(number)) return "–";
  const size = Math.abs(number);
  if (Number.isInteger(number) && size < 10000) return String(number);
  if (size >= 10000) return count(number);
  if (size >= 100) return number.toFixed(0);
  if (size >= 10) return number.toFixed(1);
  if (size >= 0.01) return number.toFixed(size >= 1 ? 2 : 3);
  return number.toExponential(1);
}
export function duration(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")} min`;
  return `${Math.floor(whole / 3600)}:${String(Math.floor((whole % 3600) / 60)).padStart(2, "0")} h`;
}
export function ago(time_s) {
  const seconds = Date.now() / 1000 - time_s;
  if (seconds < 90) return `${Math.max(0, Math.round(seconds))} s ago`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min ago`;
  if (seconds < 86400 * 1.5) return `${Math.round(seconds / 3600)} h ago`;
  return new Date(time_s * 1000).toISOString().slice(0, 10);
}
export const clock = (time_s) => new Date(time_s * 1000).toTimeString().slice(0, 8);
export const interval = (rate) => (rate ? `[${(100 * rate.low).toFixed(1)}, ${(100 * rate.high).toFixed(1)}] of ${rate.n}` : "");
