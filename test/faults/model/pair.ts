/**
 * Two verbs at once on one sandbox. One wins and the other gets `conflict`, or both happen, one after
 * the other. Each works on a picture of its own of the sandbox; what may be true afterwards is put together
 * from both.
 */
import type { Outcome } from './client.ts';
import type { Box, Model } from './model.ts';
import type { Operation, Setting } from './operations.ts';

const PAIRS = [
  ['rollback', 'rollback'],
  ['rollback', 'fork'],
  ['rollback', 'snapshot'],
  ['remove', 'snapshot'],
  ['pause', 'snapshot'],
] as const;

export async function pair(
  operations: Record<string, { operation: Operation }>,
  setting: Setting,
  box: Box,
): Promise<Outcome<unknown>> {
  const { model, random } = setting;
  const names = random.pick(PAIRS);
  const known = new Set(model.boxes.keys());
  const pictures = names.map(() => pictureOf(box));
  const outcomes = await Promise.all(
    names.map((name, index) => operations[name]!.operation(setting, pictures[index]!)),
  );
  judge(model, box, names, outcomes);
  merge(box, names, pictures, outcomes);
  // A child may be of before or of after.
  for (const child of model.boxes.values())
    if (!known.has(child.id)) for (const note of box.note) child.note.add(note);
  return (
    outcomes.find((outcome) => 'unknown' in outcome) ??
    outcomes.find((outcome) => 'done' in outcome) ??
    outcomes[0]!
  );
}

function judge(model: Model, { id }: Box, names: readonly string[], outcomes: Outcome<unknown>[]): void {
  const refused = outcomes.map((outcome) => ('refused' in outcome ? outcome.refused : undefined));
  const told = `${names.join(' and ')} of ${id} at once: ${JSON.stringify(outcomes).slice(0, 600)}`;
  if (refused.every((code) => code === 'conflict')) model.findings.push(`neither won, ${told}`);
  const allowed = [
    'conflict',
    'failed_precondition',
    'nothing',
    ...(names.includes('remove') ? ['not_found'] : []),
    ...(model.full ? ['resource_exhausted'] : []),
  ];
  if (
    outcomes.some((outcome) => 'done' in outcome) &&
    refused.some((code) => code !== undefined && !allowed.includes(code))
  ) {
    model.findings.push(`the loser was not told of a conflict, ${told}`);
  }
}

function merge(box: Box, names: readonly string[], pictures: Box[], outcomes: Outcome<unknown>[]): void {
  const moved = pictures.filter(
    (_, index) => names[index] === 'rollback' && !('refused' in outcomes[index]!),
  );
  if (moved.length > 0) box.note = new Set(moved.flatMap(({ note }) => [...note]));
  box.states = new Set(pictures.flatMap(({ states }) => [...states]));
  // One that has failed is stopped after a rollback.
  if (box.hurt && moved.length > 0) box.states.add('stopped');
  for (const word of box.words.keys())
    box.words.set(
      word,
      pictures.every(({ words }) => words.get(word)),
    );
  for (const { snapshots } of pictures) {
    // One that was taken meanwhile may be of before or of after.
    for (const [id, taken] of snapshots)
      box.snapshots.set(
        id,
        box.snapshots.get(id) ?? { ...taken, note: new Set([...taken.note, ...box.note]) },
      );
  }
  box.unknownSnapshots = pictures.some(({ unknownSnapshots }) => unknownSnapshots);
  for (const id of box.launched.keys())
    if (!pictures.every(({ launched }) => launched.has(id))) box.launched.delete(id);
  box.lastTurn = Math.max(...pictures.map(({ lastTurn }) => lastTurn));
  box.leaving = pictures.some(({ leaving }) => leaving);
}

function pictureOf(box: Box): Box {
  return {
    ...box,
    states: new Set(box.states),
    note: new Set(box.note),
    words: new Map(box.words),
    snapshots: new Map(box.snapshots),
    launched: new Map(box.launched),
  };
}
