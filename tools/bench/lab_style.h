// The style sheet of the page of `tandem lab`, in the colours of the server's page.
#ifndef TANDEM_TOOLS_BENCH_LAB_STYLE_H_
#define TANDEM_TOOLS_BENCH_LAB_STYLE_H_

namespace tandem {

inline constexpr char kLabStyle[] = R"(
:root {
  --paper: #f5f2ec; --card: #fffdf9; --ink: #24211c; --soft: #645d51; --line: #e2dbce;
  --wrong: #a3261c; --wrong-paper: #fcebe7;
  --c0: #0b5fb0; --c1: #b3460f; --c2: #1d7a54; --c3: #8a3a86; --c4: #7a5b00; --limit: #645d51;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #161513; --card: #201f1b; --ink: #ece7dc; --soft: #aca493; --line: #38352e;
    --wrong: #ff9a8c; --wrong-paper: #3a1d19;
    --c0: #7db8f5; --c1: #f2995a; --c2: #5cc7a5; --c3: #dc9ad6; --c4: #e0bd55; --limit: #aca493;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", "Noto Sans", sans-serif;
  font-variant-numeric: tabular-nums;
}
main { max-width: 768px; margin: 0 auto; padding: 24px 16px 48px; }
h1, h2 { font-family: Charter, "Iowan Old Style", "Noto Serif", Georgia, serif; line-height: 1.25; }
h1 { font-size: 28px; margin: 0 0 8px; }
h2 { font-size: 21px; margin: 0 0 8px; }
p { margin: 0 0 10px; }
section {
  background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 18px; margin: 18px 0;
}
figure { margin: 0; min-width: 0; }
svg { display: block; max-width: 100%; height: auto; margin: 8px 0; }
.wide { display: none; }
.narrow svg { width: 100%; max-width: 480px; }
@media (min-width: 800px) {
  .wide { display: block; }
  .narrow { display: none; }
}
@media (min-width: 1240px) {
  main { max-width: 1200px; }
  section:not(.about) {
    display: grid; grid-template-columns: 384px 720px; gap: 24px; padding: 22px;
  }
}
.tiles {
  display: flex; flex-wrap: wrap; gap: 10px; list-style: none; margin: 16px 0 0; padding: 0;
}
.tiles li {
  flex: 1 1 150px; background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 10px 14px; color: var(--soft); font-size: 14px;
}
.tiles b { display: block; color: var(--ink); font-size: 28px; line-height: 1.2; }
.busy {
  background: var(--wrong-paper); color: var(--wrong); border-left: 3px solid var(--wrong);
  padding: 6px 10px;
}
svg text {
  font: 13px system-ui, -apple-system, "Segoe UI", "Noto Sans", sans-serif; fill: var(--ink);
  paint-order: stroke; stroke: var(--card); stroke-width: 3px; stroke-linejoin: round;
}
svg .axis { fill: var(--soft); }
svg .grid { stroke: var(--line); }
svg .line { fill: none; stroke-width: 2; }
svg path.c0, svg line.c0 { stroke: var(--c0); }
svg path.c1, svg line.c1 { stroke: var(--c1); }
svg path.c2, svg line.c2 { stroke: var(--c2); }
svg path.c3, svg line.c3 { stroke: var(--c3); }
svg path.c4, svg line.c4 { stroke: var(--c4); }
svg path.limit, svg line.limit { stroke: var(--limit); }
svg .dashed { stroke-width: 1.5; stroke-dasharray: 5 4; }
svg circle.c0, svg text.c0 { fill: var(--c0); }
svg circle.c1, svg text.c1 { fill: var(--c1); }
svg circle.c2, svg text.c2 { fill: var(--c2); }
svg circle.c3, svg text.c3 { fill: var(--c3); }
svg circle.c4, svg text.c4 { fill: var(--c4); }
svg text.limit { fill: var(--limit); }
svg .mark { fill: none; stroke: var(--wrong); stroke-width: 2; }
svg .marked { fill: var(--wrong); }
summary { cursor: pointer; color: var(--soft); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 14px; margin-top: 8px; }
th, td { padding: 3px 10px; text-align: right; border-bottom: 1px solid var(--line); }
th { font-weight: 600; vertical-align: bottom; }
th:first-child, td:first-child { padding-left: 0; text-align: left; white-space: nowrap; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 4px 16px; margin: 0 0 18px; }
dt { color: var(--soft); }
dd { margin: 0; overflow-wrap: anywhere; }
.about ul { margin: 0; padding-left: 20px; }
code { font: 14px ui-monospace, "DejaVu Sans Mono", monospace; overflow-wrap: anywhere; }
)";

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_LAB_STYLE_H_
