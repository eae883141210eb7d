// A device's screen on a canvas: its picture, or else its elements as boxes; and the gesture that was made on it.

import { of } from "./api.js";

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const pictures = new Map();

/** The picture at an address, loaded once; null while it is not there. */
function picture(address, ready) {
  if (!pictures.has(address)) {
    const image = new Image();
    image.onload = () => ready();
    image.src = address;
    pictures.set(address, image);
    if (pictures.size > 60) pictures.delete(pictures.keys().next().value);
  }
  const image = pictures.get(address);
  if (!image.complete) image.addEventListener("load", ready, { once: true });
  return image.complete && image.naturalWidth ? image : null;
}

/** Wait until a picture is there or cannot be had, so that nothing flashes when it is drawn. */
export async function load(address) {
  picture(address, () => {});
  await pictures.get(address).decode().catch(() => {});
}

export const frame = (run, reference) => of(run, `/frames/${encodeURIComponent(reference)}`);

/** [left, top, right, bottom, text, kind] from what an episode holds; kind: 2 what can be ticked, 1 anything else that can be clicked, 0 the rest. */
export const light = (element) => [...element.bounds, element.text || element.description || "", typeof element.checked === "boolean" ? 2 : element.clickable ? 1 : 0];

/**
 * Draw a screen. `screen`: {width_px, height_px, elements (light), picture (an address)}; `mark`: {action, hit, others, share}: what was
 * touched, what else might have been, and a share below 1 while a gesture is under way.
 */
export function draw(canvas, screen, mark = {}) {
  const ratio = ratio_of(screen);
  const width = Math.max(80, Math.round(canvas.clientWidth || canvas.parentElement?.clientWidth || 240));
  const scale = Math.min(2, window.devicePixelRatio || 1);
  const px = Math.round(width * scale), py = Math.round(width * ratio * scale);
  if (canvas.width !== px || canvas.height !== py) { canvas.width = px; canvas.height = py; }
  const at = canvas.getContext("2d");
  at.fillStyle = colour("--paper");
  at.fillRect(0, 0, px, py);
  const image = screen.picture ? picture(screen.picture, () => canvas.isConnected && draw(canvas, screen, mark)) : null;
  if (image) at.drawImage(image, 0, 0, px, py);
  else boxes(at, screen.elements || [], px, py, scale);
  for (const other of mark.others || []) if (other >= 0 && other !== mark.hit && screen.elements?.[other]) outline(at, screen.elements[other], px, py, scale, true);
  if (mark.hit >= 0 && screen.elements?.[mark.hit]) outline(at, screen.elements[mark.hit], px, py, scale);
  if (mark.action) gesture(at, mark.action, px, py, mark.share ?? 1, scale);
}

/** As large as the page has room for: a canvas is laid out by the pixels it has, which may be those of a smaller window. Draw it then. */
export function fit(canvas, screen) {
  canvas.width = 3000;
  canvas.height = 3000 * ratio_of(screen || {});
}

/** Its height by its width; a device may say anything of its size. */
const ratio_of = ({ width_px, height_px }) => (width_px > 0 && height_px > 0 ? Math.min(5, Math.max(0.2, height_px / width_px)) : 2);

function boxes(at, elements, px, py, scale) {
  const line = colour("--line"), strong = colour("--strong-line"), ink = colour("--ink"), soft = colour("--soft"), panel = colour("--panel");
  at.textAlign = "center";
  at.textBaseline = "middle";
  for (const [left, top, right, bottom, , kind] of elements) {
    const x = left * px, y = top * py, w = (right - left) * px, h = (bottom - top) * py;
    if (w < 2 || h < 2 || !kind) continue;
    at.beginPath();
    at.roundRect(x + scale, y + scale, w - 2 * scale, h - 2 * scale, Math.min(6 * scale, h / 4));
    at.fillStyle = panel;
    at.fill();
    at.lineWidth = scale;
    at.strokeStyle = px < 250 * scale ? line : strong;
    at.stroke();
  }
  for (const [left, top, right, bottom, text, kind] of labelled(elements)) {
    const x = left * px, y = top * py, w = (right - left) * px, h = (bottom - top) * py;
    if (w < 2 || h < 2 || !text) continue;
    const size = Math.max(6 * scale, Math.min(px / 22, h * 0.62));
    if (size < 5.5 * scale || h < 5 * scale) continue;
    at.font = `${size}px system-ui, "DejaVu Sans", sans-serif`;
    at.fillStyle = kind ? ink : soft;
    at.fillText(fitted(at, text, w - 6 * scale), x + w / 2, y + h / 2);
  }
}

/** The elements as their texts are drawn: what can be ticked leaves its text to the label around it or beside it, which writes it where the box is not. */
function labelled(elements) {
  const drawn = new Map(elements.map((element) => [element, element]));
  for (const box of elements) {
    const [left, top, right, bottom, text, kind] = box;
    if (kind !== 2 || !text) continue;
    const label = elements.find((one) => one !== box && one[4] === text && one[2] - one[0] > right - left && one[1] < bottom && one[3] > top && one[0] < right + 0.05 && one[2] > left - 0.05);
    if (!label) continue;
    drawn.delete(box);
    const room = [...label];
    if (left - label[0] < label[2] - right) room[0] = Math.max(label[0], right); else room[2] = Math.min(label[2], left);
    drawn.set(label, room);
  }
  return drawn.values();
}

const fits = new Map();

/** As much of a text as is `width` wide in the font that is set; measured once, since a fleet shows the same words over and over. */
function fitted(at, text, width) {
  const key = `${at.font}|${Math.round(width)}|${text}`;
  if (!fits.has(key)) {
    if (fits.size > 4000) fits.clear();
    fits.set(key, measured(at, text, Math.round(width)));
  }
  return fits.get(key);
}

function measured(at, text, width) {
  const plain = String(text).replace(/\s+/g, " ");
  if (at.measureText(plain).width <= width) return plain;
  let letters = Math.max(1, Math.floor((plain.length * width) / at.measureText(plain).width) - 1);
  while (letters > 1 && at.measureText(`${plain.slice(0, letters)}…`).width > width) letters -= 1;
  return letters > 1 ? `${plain.slice(0, letters)}…` : "";
}

function outline(at, [left, top, right, bottom], px, py, scale, dashed = false) {
  at.beginPath();
  at.setLineDash(dashed ? [4 * scale, 4 * scale] : []);
  at.roundRect(left * px, top * py, (right - left) * px, (bottom - top) * py, 6 * scale);
  at.lineWidth = 2 * scale;
  at.strokeStyle = colour("--accent");
  at.stroke();
  at.setLineDash([]);
}

function gesture(at, action, px, py, share, scale) {
  const touch = colour("--touch"), unit = px / 360;
  const ring = (x, y, radius) => {
    at.beginPath();
    at.arc(x, y, radius, 0, 7);
    at.lineWidth = 3 * unit + scale;
    at.strokeStyle = "rgba(255,255,255,0.7)";
    at.stroke();
    at.lineWidth = 2 * unit;
    at.strokeStyle = touch;
    at.stroke();
  };
  if (action.type === "tap" || action.type === "long_press") {
    const x = action.x * px, y = action.y * py;
    ring(x, y, (8 + 16 * share) * unit);
    if (action.type === "long_press") ring(x, y, 36 * unit * share);
    at.beginPath();
    at.arc(x, y, 3 * unit, 0, 7);
    at.fillStyle = touch;
    at.fill();
  } else if (action.type === "swipe") {
    const from = [action.x * px, action.y * py];
    const to = [from[0] + (action.to_x * px - from[0]) * share, from[1] + (action.to_y * py - from[1]) * share];
    const angle = Math.atan2(to[1] - from[1], to[0] - from[0]);
    for (const [style, width] of [["rgba(255,255,255,0.9)", 9 * unit], [touch, 5 * unit]]) {
      at.strokeStyle = at.fillStyle = style;
      at.lineWidth = width;
      at.lineCap = "round";
      at.beginPath();
      at.moveTo(...from);
      at.lineTo(...to);
      at.stroke();
    }
    at.beginPath();
    for (const turn of [0, 2.5, -2.5]) at.lineTo(to[0] + 18 * unit * Math.cos(angle + turn), to[1] + 18 * unit * Math.sin(angle + turn));
    at.closePath();
    at.fill();
    ring(...from, 9 * unit);
  } else {
    label(at, words(action), px, py, touch, scale);
  }
}

function label(at, text, px, py, touch, scale) {
  const size = Math.max(11 * scale, px / 19), y = py * 0.9;
  at.font = `600 ${size}px system-ui, "DejaVu Sans", sans-serif`;
  at.textAlign = "center";
  at.textBaseline = "middle";
  const shown = fitted(at, text, px * 0.84), half = at.measureText(shown).width / 2 + size * 0.8;
  at.beginPath();
  at.roundRect(px / 2 - half, y - size, 2 * half, 2 * size, size);
  at.fillStyle = "#191e24";
  at.fill();
  at.lineWidth = 2 * scale;
  at.strokeStyle = touch;
  at.stroke();
  at.fillStyle = "#ffffff";
  at.fillText(shown, px / 2, y);
}

// --- words -------------------------------------------------------------------------------------------------------

const quoted = (text, most = 60) => {
  const plain = String(text).replace(/\s+/g, " ");
  return `“${plain.length > most ? `${plain.slice(0, most - 1)}…` : plain}”`;
};

const place = ({ x, y }) => (Number.isFinite(x) && Number.isFinite(y) ? `${x.toFixed(2)}, ${y.toFixed(2)}` : "no place");

/** An action in a few words; `name` is what it touched. */
export function words(action, name = "") {
  if (!action) return "deciding …";
  switch (action.type) {
    case "tap": return name ? `tap ${quoted(name)}` : `tap at ${place(action)}`;
    case "long_press": return name ? `hold ${quoted(name)}` : `hold at ${place(action)}`;
    case "swipe": {
      const across = Math.abs(action.to_x - action.x) > Math.abs(action.to_y - action.y);
      return `swipe ${across ? (action.to_x > action.x ? "right" : "left") : action.to_y > action.y ? "down" : "up"}`;
    }
    case "type": return `type ${quoted(action.text)}`;
    case "press": return `press ${action.key}`;
    case "wait": return "wait";
    case "finish": {
      const claim = action.status === "impossible" ? "says it is impossible" : "says it is done";
      return action.answer ? `${claim}: ${quoted(action.answer)}` : claim;
    }
    case "unparsed": return `not understood: ${quoted(action.raw)}`;
    default: return action.type || "?";
  }
}

const ENDED = { finished: "the agent finished", environment: "the device ended it", step_limit: "out of steps", time_limit: "out of time", cut_off: "cut off by the end of the run", device_lost: "the device was lost" };

/** What an episode came to: one that the end of the run cut off neither succeeded nor failed, whatever its judge said. */
export const outcome_of = (success, ending, judged) => (success ? "success" : ending === "cut_off" ? "cut_off" : judged || "failure");

/** How an episode ended, in a few words. */
export const ended = (ending) => ENDED[ending] || ending.replace("_", " ");

export const name_of = (element) => (element ? element.text || element.description || element.resource_id || element.class_name : "");
