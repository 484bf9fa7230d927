/** The word that was probably meant: one with few letters that differ, compared with its length. */
export function closest(word: string, known: readonly string[]): string | undefined {
  const most = Math.floor(Math.max(word.length, 3) / 3);
  let best: { word: string; distance: number } | undefined;
  for (const candidate of known) {
    const distance = distanceOf(word, candidate);
    if (distance <= Math.min(most, 2) && (!best || distance < best.distance))
      best = { word: candidate, distance };
  }
  return best?.word;
}

/** Letters to add, remove, change or swap with their neighbour. */
function distanceOf(one: string, other: string): number {
  const rows = [Array.from({ length: other.length + 1 }, (_, index) => index)];
  for (let i = 1; i <= one.length; i++) {
    const row = [i];
    for (let j = 1; j <= other.length; j++) {
      const changed = rows[i - 1]![j - 1]! + (one[i - 1] === other[j - 1] ? 0 : 1);
      const swapped =
        i > 1 && j > 1 && one[i - 1] === other[j - 2] && one[i - 2] === other[j - 1]
          ? rows[i - 2]![j - 2]! + 1
          : Infinity;
      row.push(Math.min(rows[i - 1]![j]! + 1, row[j - 1]! + 1, changed, swapped));
    }
    rows.push(row);
  }
  return rows[one.length]![other.length]!;
}
