// Keeps an open page up to date: on each event it reads the page again and replaces the parts that are marked `data-live`. Without this
// script the page is as it was when it was loaded.
'use strict';
(() => {
  // Between two readings, in milliseconds.
  const pause = 800;
  // Without events.
  const interval = 10000;
  const box = document.getElementById('live');
  const state = document.getElementById('live-state');
  const button = document.getElementById('live-pause');
  let isReading = false, isWanted = false, isPaused = false, isPressed = false, last = 0, timer = 0;

  const show = (text) => {
    const shown = isPaused ? 'Paused' : text;
    // A screen reader reads what changes.
    if (state.textContent !== shown) state.textContent = shown;
  };

  // Whether somebody marks text there.
  const isSelected = (part) => {
    const selection = document.getSelection();
    return selection && !selection.isCollapsed && part.contains(selection.anchorNode);
  };

  const newest = () => Math.max(0, ...Array.from(document.querySelectorAll('tr[data-seq]'), (row) => Number(row.dataset.seq)));

  const replace = (fresh) => {
    const before = newest();
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
    if (document.title !== fresh.title) document.title = fresh.title;
  };

  const read = async () => {
    if (isReading || isPaused || document.hidden) {
      isWanted = true;
      return;
    }
    isReading = true;
    isWanted = false;
    try {
      const answer = await fetch(location.href, { headers: { Accept: 'text/html' }, cache: 'no-store' });
      const text = await answer.text();
      // A button that is replaced while it is pressed is not clicked.
      if (isPressed) isWanted = true;
      else if (answer.ok && !isPaused) replace(new DOMParser().parseFromString(text, 'text/html'));
      show(answer.ok ? 'Live' : `Not up to date: status ${answer.status}`);
    } catch {
      show('Not up to date: resyncd does not answer');
    }
    isReading = false;
    last = Date.now();
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
    show('Live');
    if (!isPaused) soon();
  });
  document.addEventListener('pointerdown', () => { isPressed = true; });
  // A release outside of the window, or in a menu, is not reported.
  document.addEventListener('pointermove', (event) => { if (!event.buttons) isPressed = false; });
  for (const end of ['pointerup', 'pointercancel', 'dragend']) {
    // The click follows.
    document.addEventListener(end, () => setTimeout(() => { isPressed = false; }));
  }
  document.addEventListener('visibilitychange', () => {
    if (!document.hidden) soon();
  });
  const news = new EventSource(`${document.documentElement.dataset.root}page/events`);
  news.addEventListener('news', soon);
  news.addEventListener('open', soon);
  setInterval(soon, interval);
  box.hidden = false;
  show('Live');
})();
