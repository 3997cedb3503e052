// Keeps an open page up to date: on each event it reads the page again and replaces the parts that are marked `data-live`. Without this
// script the page is as it was when it was loaded. A page that nobody sees has no connection: browsers open six to a host, of all tabs.
'use strict';
(() => {
  // Between two readings, in milliseconds.
  const pause = 800;
  // Without events.
  const interval = 10000;
  // A reading that takes longer is given up.
  const longest = 20000;
  // An event is sent every five seconds at least: a stream without any for that long is taken for dead.
  const silence = 15000;
  const box = document.getElementById('live');
  const state = document.getElementById('live-state');
  const button = document.getElementById('live-pause');
  // Whether a person waits for a reading, also while the page is paused.
  let isAsked = false;
  let isReading = false, isWanted = false, isPaused = false, isPressed = false, last = 0, timer = 0;
  // The stream of events, when it was opened, and when it was last heard; 0: it was not.
  let news = null, opened = 0, heard = 0;

  const show = (text) => {
    const shown = isPaused ? 'Paused' : text;
    // A screen reader reads what changes.
    if (state.textContent !== shown) state.textContent = shown;
  };

  const isLive = () => news?.readyState === EventSource.OPEN && heard > 0 && Date.now() - heard < silence;

  const showUpToDate = () => show(isLive() ? 'Live' : `Updated every ${interval / 1000} s`);

  const showEnd = () => {
    if (state.textContent === 'Live') showUpToDate();
  };

  // Whether somebody marks text there.
  const isSelected = (part) => {
    const selection = document.getSelection();
    return selection && !selection.isCollapsed && part.contains(selection.anchorNode);
  };

  const newest = () => Math.max(0, ...Array.from(document.querySelectorAll('tr[data-seq]'), (row) => Number(row.dataset.seq)));

  const replace = (fresh) => {
    const before = newest();
    localize(fresh);
    for (const part of document.querySelectorAll('[data-live]')) {
      const other = fresh.getElementById(part.id);
      if (!other || part.innerHTML === other.innerHTML || isSelected(part)) continue;
      const focused = part.contains(document.activeElement) ? document.activeElement.id : '';
      const open = Array.from(part.querySelectorAll('details[open]'), (details) => details.id);
      const scrolled = Array.from(part.querySelectorAll('.scroll'), (region) => [region.id, region.scrollLeft]);
      part.className = other.className;
      part.replaceChildren(...other.childNodes);
      for (const id of open) document.getElementById(id)?.setAttribute('open', '');
      for (const [id, left] of scrolled) {
        const region = document.getElementById(id);
        if (region) region.scrollLeft = left;
      }
      if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
    }
    for (const row of document.querySelectorAll('tr[data-seq]')) {
      if (before && Number(row.dataset.seq) > before) row.classList.add('fresh');
    }
    hide();
    if (document.title !== fresh.title) document.title = fresh.title;
  };

  // Beside the times in UTC, those here.
  const localize = (root) => {
    for (const time of root.querySelectorAll('time')) {
      const at = new Date(time.dateTime);
      if (!at.getTimezoneOffset() || Number.isNaN(at.getTime())) continue;
      const local = ` (${at.toLocaleString('sv')} here)`;
      if (time.title) time.title += local;
      else time.textContent += local;
    }
  };

  // Hides the rows of the Sources that are not wanted; the page that is read then has all others.
  const filter = document.getElementById('filter');
  const hide = () => {
    if (!filter) return;
    const [name, state] = [filter.elements.name.value.trim().toLowerCase(), filter.elements.state.value];
    for (const row of document.querySelectorAll('tr[data-name]')) {
      row.hidden = !row.dataset.name.toLowerCase().includes(name) || (state !== '' && row.dataset.state !== state);
    }
  };

  const read = async () => {
    const asked = isAsked;
    if (isReading || (isPaused && !asked) || document.hidden) {
      isWanted = true;
      return;
    }
    isReading = true;
    isWanted = isAsked = false;
    try {
      const answer = await fetch(location.href, { headers: { Accept: 'text/html' }, cache: 'no-store', signal: AbortSignal.timeout(longest) });
      const text = await answer.text();
      // A button that is replaced while it is pressed is not clicked.
      if (isPressed) isWanted = true;
      else if (answer.ok && (asked || !isPaused)) replace(new DOMParser().parseFromString(text, 'text/html'));
      if (answer.ok) showUpToDate();
      else show(`Not up to date: status ${answer.status}`);
    } catch {
      show('Not up to date: resyncd does not answer');
    }
    isReading = false;
    last = isAsked ? 0 : Date.now();
    if (isWanted) soon();
  };

  const soon = () => {
    if (timer) return;
    timer = setTimeout(() => {
      timer = 0;
      read();
    }, Math.max(0, last + pause - Date.now()));
  };

  button.addEventListener('click', () => {
    isPaused = !isPaused;
    button.setAttribute('aria-pressed', String(isPaused));
    show('Connecting');
    follow();
  });
  filter?.addEventListener('input', () => {
    history.replaceState(null, '', `?${new URLSearchParams(new FormData(filter))}`);
    hide();
    isAsked = true;
    last = 0;
    soon();
  });
  document.addEventListener('pointerdown', () => { isPressed = true; });
  // A release outside of the window, or in a menu, is not reported.
  document.addEventListener('pointermove', (event) => { if (!event.buttons) isPressed = false; });
  for (const end of ['pointerup', 'pointercancel', 'dragend']) {
    // The click follows.
    document.addEventListener(end, () => setTimeout(() => { isPressed = false; }));
  }

  const leave = () => {
    news?.close();
    news = null;
    heard = 0;
  };

  // Has the stream open while somebody sees the page. An event says only that there is something new, and the first one comes at once: the
  // page is read as a whole then, so that no event that was missed is needed.
  const follow = () => {
    if (isPaused || document.hidden) {
      leave();
      return;
    }
    soon();
    showEnd();
    const isSilent = Date.now() - Math.max(opened, heard) >= silence;
    if (news && news.readyState !== EventSource.CLOSED && !isSilent) return;
    leave();
    opened = Date.now();
    news = new EventSource(`${document.documentElement.dataset.root}page/events`);
    news.addEventListener('news', () => {
      heard = Date.now();
      soon();
    });
    news.addEventListener('error', () => {
      // The browser opens it again, unless the answer was an error: then the next interval does.
      heard = 0;
      showEnd();
    });
  };

  document.addEventListener('visibilitychange', follow);
  // Of a page that the browser keeps to go back to.
  window.addEventListener('pagehide', leave);
  window.addEventListener('pageshow', follow);
  setInterval(follow, interval);
  localize(document);
  box.hidden = false;
  show('Connecting');
  follow();
})();
