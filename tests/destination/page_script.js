// Runs the script of the page with a document, a clock and connections that are made up. Usage: node page_script.js SCRIPT
'use strict';
const assert = require('node:assert');
const { readFileSync } = require('node:fs');
const vm = require('node:vm');

const script = readFileSync(process.argv[2], 'utf8');

// A page in a browser; `fetch` answers what `answer` returns.
const open = (answer) => {
  let now = 1000000, timers = [], number = 0;
  const page = { streams: [], requests: [] };
  const listeners = () => {
    const all = {};
    return {
      addEventListener: (type, listener) => { (all[type] ??= []).push(listener); },
      emit: (type, event = {}) => (all[type] ?? []).forEach((listener) => listener(event)),
    };
  };
  const element = () => ({ ...listeners(), textContent: '', hidden: true, setAttribute() {} });
  const elements = { 'live': element(), 'live-state': element(), 'live-pause': element() };
  const document = {
    ...listeners(), hidden: false, title: '', documentElement: { dataset: { root: './' } },
    getElementById: (id) => elements[id] ?? null, querySelectorAll: () => [], getSelection: () => null,
  };
  class EventSource {
    static OPEN = 1;
    static CLOSED = 2;
    readyState = 0;
    constructor(url) {
      Object.assign(this, listeners(), { url });
      page.streams.push(this);
    }
    close() { this.readyState = 2; }
  }
  const later = (callback, delay, every) => {
    timers.push({ at: now + Math.max(delay, 1), callback, every, number: ++number });
    return number;
  };
  vm.runInNewContext(script, {
    document, EventSource, Array, Math, Number, String,
    window: listeners(), location: { href: 'http://localhost/' }, Date: { now: () => now },
    AbortSignal: { timeout: (milliseconds) => ({ milliseconds }) },
    DOMParser: class { parseFromString() { return document; } },
    setTimeout: (callback, delay = 0) => later(callback, delay, 0), setInterval: (callback, delay) => later(callback, delay, delay),
    fetch: async (url, options) => {
      page.requests.push(options);
      return answer(options);
    },
  });
  // What was promised is done between two timers.
  page.pass = async (milliseconds) => {
    for (const end = now + milliseconds; ;) {
      await new Promise(setImmediate);
      const next = timers.sort((one, other) => one.at - other.at || one.number - other.number)[0];
      if (!next || next.at > end) {
        now = end;
        return;
      }
      now = next.at;
      if (next.every) next.at += next.every;
      else timers.shift();
      next.callback();
    }
  };
  page.connected = () => page.streams.filter((stream) => stream.readyState !== 2).length;
  page.hear = (stream) => {
    stream.readyState = 1;
    stream.emit('news');
  };
  page.hide = (isHidden) => {
    document.hidden = isHidden;
    document.emit('visibilitychange');
  };
  page.label = () => elements['live-state'].textContent;
  page.pause = () => elements['live-pause'].emit('click');
  return page;
};

const served = () => ({ ok: true, status: 200, text: async () => '' });

const tests = {
  async 'a page is live only while its stream is heard'() {
    const page = open(served);
    assert.strictEqual(page.label(), 'Connecting');
    await page.pass(2000);
    assert.strictEqual(page.label(), 'Updated every 10 s', 'not heard yet');
    const [stream] = page.streams;
    // Accepted by a proxy that passes on no event.
    stream.readyState = 1;
    stream.emit('open');
    await page.pass(2000);
    assert.strictEqual(page.label(), 'Updated every 10 s', 'open and not heard');
    page.hear(stream);
    await page.pass(2000);
    assert.strictEqual(page.label(), 'Live');
    // It breaks off, and the browser connects again.
    stream.readyState = 0;
    stream.emit('error');
    assert.strictEqual(page.label(), 'Updated every 10 s');
    page.hear(stream);
    await page.pass(2000);
    assert.strictEqual(page.label(), 'Live');
    // Silence.
    await page.pass(40000);
    assert.strictEqual(page.label(), 'Updated every 10 s');
    assert.ok(page.streams.length > 1 && page.connected() === 1, 'a silent one is replaced');
  },
  async 'a page that nobody sees has no connection'() {
    const page = open(served);
    page.hear(page.streams[0]);
    await page.pass(2000);
    page.hide(true);
    assert.strictEqual(page.connected(), 0);
    const requests = page.requests.length;
    await page.pass(60000);
    assert.strictEqual(page.connected(), 0);
    assert.strictEqual(page.requests.length, requests);
    page.hide(false);
    assert.strictEqual(page.connected(), 1);
    await page.pass(2000);
    assert.ok(page.requests.length > requests, 'it is read again at once');
    page.pause();
    assert.deepStrictEqual([page.connected(), page.label()], [0, 'Paused']);
    page.pause();
    assert.strictEqual(page.connected(), 1);
  },
  async 'a stream that is refused is tried again, and the page read meanwhile'() {
    const page = open(served);
    for (let tries = 1; tries < 4; tries += 1) {
      assert.strictEqual(page.streams.length, tries);
      page.streams[tries - 1].close();
      page.streams[tries - 1].emit('error');
      await page.pass(10000);
      assert.strictEqual(page.label(), 'Updated every 10 s');
    }
    assert.ok(page.requests.length >= 3);
  },
  async 'a reading that hangs is given up'() {
    // As a browser does that has no connection left.
    const page = open((options) => {
      assert.ok(options.signal.milliseconds > 0);
      return Promise.reject(new Error('timeout'));
    });
    await page.pass(2000);
    assert.strictEqual(page.label(), 'Not up to date: resyncd does not answer');
  },
};

(async () => {
  for (const [name, test] of Object.entries(tests)) {
    await test();
    console.log(`ok: ${name}`);
  }
})().catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
