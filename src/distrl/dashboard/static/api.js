// What the server is asked, and the stream of what changes.

export async function get(address, signal) {
  let answer;
  try {
    answer = await fetch(address, { signal, headers: { Accept: "application/json" } });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    const lost = new Error("the dashboard's server does not answer; it may have been stopped. This page goes on by itself once it is back.");
    throw Object.assign(lost, { again: true });
  }
  const found = await answer.json().catch(() => ({ error: `answer ${answer.status}` }));
  if (!answer.ok) throw new Error(found.error || `answer ${answer.status}`);
  return found;
}

/** Ask this dashboard to do something: only attempts by hand can be asked for. */
export async function post(address, body = {}, { keepalive = false } = {}) {
  let answer;
  try {
    answer = await fetch(address, { method: "POST", headers: { "Content-Type": "application/json", Accept: "application/json" }, body: JSON.stringify(body), keepalive });
  } catch {
    throw new Error("the dashboard's server does not answer; it may have been stopped.");
  }
  const found = await answer.json().catch(() => ({ error: `answer ${answer.status}` }));
  if (!answer.ok) throw new Error(found.error || `answer ${answer.status}`);
  return found;
}

/** Take a phone to try a task by hand, and go to its page. */
export async function begin(go, asked) {
  const made = await post("/api/attempts", asked);
  return go(`/try/${made.id}`);
}

export const of = (run, rest = "") => `/api/runs/${encodeURIComponent(run)}${rest}`;
export const page = (run, rest = "") => `/runs/${encodeURIComponent(run)}${rest}`;

/** Do this every so often while the page can be seen, one at a time; what comes back ends it. */
export function every(pause_ms, work) {
  let timer = 0, ended = false;
  const again = async () => {
    if (!document.hidden) { try { await work(); } catch { /* the next time */ } }
    if (!ended) timer = setTimeout(again, pause_ms);
  };
  timer = setTimeout(again, pause_ms);
  return () => { ended = true; clearTimeout(timer); };
}

/** Asks for `work` as often as one likes, and it is done at most every so often, and once after the last time. */
export function at_most(pause_ms, work) {
  let timer = 0, last = 0;
  const ask = () => {
    clearTimeout(timer);
    timer = setTimeout(() => { last = Date.now(); Promise.resolve(work()).catch(() => {}); }, Math.max(0, pause_ms - (Date.now() - last)));
  };
  return { ask, end: () => clearTimeout(timer) };
}

/** Follow a run: `hear(name, data)` for each event, `state(connected)` when the connection comes or goes. */
export function follow(run, fleet, hear, state) {
  let source = null, again = 0, closed = false;
  const open = () => {
    if (closed) return;
    source = new EventSource(of(run, `/stream${fleet ? "?fleet=1" : ""}`));
    source.onopen = () => state(true);
    source.onerror = () => {
      state(false);
      if (source.readyState === EventSource.CLOSED) again = setTimeout(open, 2000);
    };
    for (const name of ["pulse", "fleet", "trouble"]) source.addEventListener(name, (event) => hear(name, JSON.parse(event.data)));
  };
  open();
  return () => { closed = true; clearTimeout(again); source?.close(); };
}
