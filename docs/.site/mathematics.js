// Sets the mathematics of a page once it is there, and again whenever the theme puts another page in its place.
const ours = [{ left: "\\(", right: "\\)", display: false }, { left: "\\[", right: "\\]", display: true }];
const dollars = [{ left: "$$", right: "$$", display: true }, { left: "$", right: "$", display: false }]; // notebooks keep theirs
const set = () => {
  renderMathInElement(document.body, { delimiters: ours });
  document.querySelectorAll(".jupyter-wrapper").forEach((part) => renderMathInElement(part, { delimiters: dollars }));
};
if (typeof document$ === "undefined") document.addEventListener("DOMContentLoaded", set);
else document$.subscribe(set);
