/**
 * A flame graph as SVG: callers below, callees above, as wide as the share of samples. Hovering tells the
 * name.
 */
import type { Stacks } from './fold-stacks.ts';

const WIDTH = 1200;
const ROW = 16;
const TITLE = 28;
/** What is thinner is left out, in pixels. */
const THINNEST = 2;
const LETTER = 6.6;

interface Frame {
  name: string;
  count: number;
  children: Map<string, Frame>;
}

export function drawFlames(title: string, stacks: Stacks): string {
  const root = treeOf(stacks);
  const scale = WIDTH / Math.max(root.count, 1);
  const depth = depthOf(root, scale);
  const height = TITLE + depth * ROW + 4;
  const shapes: string[] = [];
  const draw = (frame: Frame, x: number, level: number): void => {
    const width = frame.count * scale;
    if (width < THINNEST) return;
    shapes.push(shape(frame, x, height - 4 - (level + 1) * ROW, width, root.count));
    let at = x;
    for (const child of [...frame.children.values()].toSorted((a, b) => b.count - a.count)) {
      draw(child, at, level + 1);
      at += child.count * scale;
    }
  };
  draw(root, 0, 0);
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" font-family="monospace" font-size="11">`,
    `<rect width="${WIDTH}" height="${height}" fill="#fff"/>`,
    `<text x="${WIDTH / 2}" y="18" text-anchor="middle" font-size="13">${escape(title)}</text>`,
    ...shapes,
    '</svg>',
    '',
  ].join('\n');
}

function treeOf(stacks: Stacks): Frame {
  const root: Frame = { name: 'all', count: 0, children: new Map() };
  for (const [stack, count] of stacks) {
    let frame = root;
    frame.count += count;
    for (const name of stack.split(';')) {
      let child = frame.children.get(name);
      if (!child) frame.children.set(name, (child = { name, count: 0, children: new Map() }));
      child.count += count;
      frame = child;
    }
  }
  return root;
}

function depthOf(frame: Frame, scale: number): number {
  if (frame.count * scale < THINNEST) return 0;
  return 1 + Math.max(0, ...[...frame.children.values()].map((child) => depthOf(child, scale)));
}

function shape({ name, count }: Frame, x: number, y: number, width: number, all: number): string {
  const share = ((100 * count) / all).toFixed(1);
  const room = Math.floor((width - 4) / LETTER);
  const label = name.length <= room ? name : room > 4 ? `${name.slice(0, room - 1)}…` : '';
  return (
    `<g><title>${escape(name)}: ${share} %</title>` +
    `<rect x="${x.toFixed(1)}" y="${y}" width="${(width - 0.4).toFixed(1)}" height="${ROW - 1}" fill="${colour(name)}"/>` +
    `${label && `<text x="${(x + 2).toFixed(1)}" y="${y + 11}">${escape(label)}</text>`}</g>`
  );
}

/** The same name has the same colour in every graph. */
function colour(name: string): string {
  let hash = 0;
  for (const letter of name) hash = (hash * 31 + letter.charCodeAt(0)) % 997;
  return `hsl(${10 + (hash % 45)} 85% ${62 + (hash % 14)}%)`;
}

function escape(text: string): string {
  return text
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;');
}
