/** The candidate that differs from the text in the fewest letters, if those are few. */
export function nearest(text: string, candidates: Iterable<string>): string | undefined {
  // A long text is no typing error, and would take long to compare.
  if (text.length > MAX_LENGTH) return undefined;
  let best: string | undefined;
  // Two letters that change places are two edits.
  let fewest = (text.length < 4 ? 1 : Math.max(2, Math.floor(text.length / 3))) + 1;
  for (const candidate of candidates) {
    const edits =
      candidate.length > MAX_LENGTH ? Infinity : distance(text.toLowerCase(), candidate.toLowerCase());
    if (edits < fewest) [best, fewest] = [candidate, edits];
  }
  return best;
}

const MAX_LENGTH = 40;

/** Letters to insert, remove or replace to make one text of the other. */
function distance(one: string, other: string): number {
  let row = Array.from({ length: other.length + 1 }, (_, index) => index);
  for (let i = 1; i <= one.length; i++) {
    const next = [i];
    for (let j = 1; j <= other.length; j++) {
      const replaced = row[j - 1]! + (one[i - 1] === other[j - 1] ? 0 : 1);
      next.push(Math.min(replaced, row[j]! + 1, next[j - 1]! + 1));
    }
    row = next;
  }
  return row.at(-1)!;
}
