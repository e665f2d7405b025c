// Sets the mathematics of a page once it is there, and again whenever the theme puts another page in its place.
const set = () => renderMathInElement(document.body, { delimiters: [{ left: "\\(", right: "\\)", display: false }, { left: "\\[", right: "\\]", display: true }] });
if (typeof document$ === "undefined") document.addEventListener("DOMContentLoaded", set);
else document$.subscribe(set);
