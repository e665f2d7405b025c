// While a run goes on: ask the server now and then whether there is more, and load the page again when there is.
(function () {
  const watch = ak.data.watch, banner = document.getElementById("watching");
  if (!watch || !banner) return;
  const place = ak.recall("scroll");
  if (place) requestAnimationFrame(() => scrollTo(0, place));
  let misses = 0;

  const ago = (seconds) => (seconds < 90 ? `${Math.round(seconds)} s` : seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`);

  async function look() {
    try {
      const answer = await fetch("state", { cache: "no-store" }), state = await answer.json();
      misses = 0;
      if (state.version !== watch.version && !document.querySelector("dialog[open]")) {
        ak.remember("scroll", scrollY);
        location.reload();
        return;
      }
      banner.textContent = watch.complete ? "Watching: the run is complete." : `Watching: this page follows the run; the last result came ${ago(state.age)} ago.`;
    } catch {
      misses++;
      banner.textContent = misses > 2 ? "almakit watch has ended; this is the last state it saw." : "Waiting for almakit watch \u2026";
    }
    setTimeout(look, misses > 2 ? 15000 : 1000 * watch.seconds);
  }
  setTimeout(look, 1000 * watch.seconds);
})();
