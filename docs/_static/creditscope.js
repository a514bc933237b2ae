// What the theme leaves out for keyboards and screen readers: levels of captions, names of the side bars, focus for what scrolls.
document.addEventListener("DOMContentLoaded", () => {
  document.querySelectorAll('p.caption[role="heading"]').forEach((e) => e.setAttribute("aria-level", "2"));
  document.querySelector("aside.sidebar-drawer")?.setAttribute("aria-label", "Pages");
  document.querySelector("aside.toc-drawer")?.setAttribute("aria-label", "On this page");
  const reach = () =>
    document.querySelectorAll("article pre, article .math-block, article .table-wrapper, article p").forEach((e) => {
      if (e.scrollWidth > e.clientWidth) e.tabIndex = 0;
    });
  reach();
  addEventListener("load", reach);
  addEventListener("resize", reach);
});
