import { diffArrays } from 'diff';

/**
 * A run of lines that are in both texts, in the old one, or in the new one. Each ends with its newline, if it
 * has one.
 */
export interface Run {
  side: ' ' | '-' | '+';
  lines: string[];
}

/**
 * The time grows with the square of it; beyond, all lines between the first and the last difference are
 * replaced.
 */
const MOST_EDITS = 1000;
const MOST_MS = 1000;
const CONTEXT = 3;

/** Without `careful` it takes no longer than reading both. */
export function diffLines(before: string, after: string, careful = true): Run[] {
  const [old, young] = [linesOf(before), linesOf(after)];
  let start = 0;
  while (start < old.length && start < young.length && old[start] === young[start]) start++;
  let tail = 0;
  while (tail < Math.min(old.length, young.length) - start && old.at(-1 - tail) === young.at(-1 - tail))
    tail++;
  const [gone, come] = [old.slice(start, old.length - tail), young.slice(start, young.length - tail)];
  const runs: Run[] = [{ side: ' ', lines: old.slice(0, start) }];
  const alike = careful && gone.length > 0 && come.length > 0;
  const parts = alike ? diffArrays(gone, come, { maxEditLength: MOST_EDITS, timeout: MOST_MS }) : undefined;
  if (parts)
    for (const { added, removed, value } of parts)
      runs.push({ side: added ? '+' : removed ? '-' : ' ', lines: value });
  else runs.push({ side: '-', lines: gone }, { side: '+', lines: come });
  runs.push({ side: ' ', lines: old.slice(old.length - tail) });
  return runs.filter(({ lines }) => lines.length > 0);
}

function linesOf(text: string): string[] {
  return text.match(/[^\n]*\n|[^\n]+$/g) ?? [];
}

export function countLines(runs: Run[]): { insertions: number; deletions: number } {
  const count = (side: Run['side']) =>
    runs.reduce((sum, run) => (run.side === side ? sum + run.lines.length : sum), 0);
  return { insertions: count('+'), deletions: count('-') };
}

/** The runs as hunks of a unified diff. */
export function unified(runs: Run[]): string {
  let text = '';
  let [oldLine, newLine] = [1, 1];
  let hunk: { oldStart: number; newStart: number; old: number; young: number; body: string } | undefined;

  const put = (side: Run['side'], lines: string[]) => {
    for (const line of lines) {
      hunk!.body += line.endsWith('\n') ? side + line : `${side}${line}\n\\ No newline at end of file\n`;
    }
    if (side !== '+') hunk!.old += lines.length;
    if (side !== '-') hunk!.young += lines.length;
  };
  const close = () => {
    if (!hunk) return;
    // A side without lines is named by the line before it.
    const place = (start: number, count: number) => `${count === 0 ? start - 1 : start},${count}`;
    text += `@@ -${place(hunk.oldStart, hunk.old)} +${place(hunk.newStart, hunk.young)} @@\n${hunk.body}`;
    hunk = undefined;
  };

  runs.forEach(({ side, lines }, index) => {
    if (side === ' ') {
      const last = index === runs.length - 1;
      if (hunk && !last && lines.length <= 2 * CONTEXT) put(' ', lines);
      else {
        if (hunk) put(' ', lines.slice(0, CONTEXT));
        close();
        const lead = last ? [] : lines.slice(-CONTEXT);
        const ahead = lines.length - lead.length;
        hunk = last
          ? undefined
          : { oldStart: oldLine + ahead, newStart: newLine + ahead, old: 0, young: 0, body: '' };
        if (hunk) put(' ', lead);
      }
    } else {
      hunk ??= { oldStart: oldLine, newStart: newLine, old: 0, young: 0, body: '' };
      put(side, lines);
    }
    if (side !== '+') oldLine += lines.length;
    if (side !== '-') newLine += lines.length;
  });
  close();
  return text;
}
