/**
 * The operations of the suite. Each calls the API once and writes into the model what may have become of it.
 * A box is worked on by one worker at a time, so that the model stays simple.
 */
import type { Client, Outcome } from './client.ts';
import { newBox, type Box, type Model, type State } from './model.ts';
import { pair } from './pair.ts';
import type { Random } from './random.ts';

export interface Setting {
  client: Client;
  model: Model;
  random: Random;
  /** Unique in the whole run. */
  word(): string;
  memory: boolean;
  /** Operations that are done much more often, because the fault of this round waits for them. */
  favoured: readonly string[];
}

export type Operation = (setting: Setting, box: Box) => Promise<Outcome<unknown>>;

const at = (box: Box, rest: string) => `/v1/sandboxes/${box.id}${rest}`;

export async function create({ client, model, word }: Setting): Promise<Outcome<unknown>> {
  const key = word();
  model.unanswered.set(key, 'create');
  const outcome = await client.call<{ id: string }>('POST', '/v1/sandboxes', {
    body: {},
    idempotencyKey: key,
  });
  if (!('unknown' in outcome)) model.unanswered.delete(key);
  if ('done' in outcome) model.boxes.set(outcome.done.id, newBox(outcome.done.id));
  return outcome;
}

/** A change of state: done it is the new one, unknown it is either. */
async function change(box: Box, to: State, call: Promise<Outcome<unknown>>): Promise<Outcome<unknown>> {
  const outcome = await call;
  if ('done' in outcome) box.states = new Set([to]);
  else if ('unknown' in outcome) box.states.add(to);
  return outcome;
}

/** What needs the sandbox wakes it. */
function woken(box: Box, outcome: Outcome<unknown>): void {
  if (!box.states.has('paused')) return;
  if ('done' in outcome) box.states = new Set(['active']);
  else box.states.add('active');
}

/**
 * What looks at all of a sandbox brings it back from the archive, and lets a frozen one run; from disk it can
 * be read as it is.
 */
function perhapsWoken(box: Box): void {
  if (box.states.has('paused')) box.states.add('active');
}

const OPERATIONS: Record<string, { weight: number; operation: Operation }> = {
  write: {
    weight: 6,
    async operation({ client, word }, box) {
      const content = word();
      const outcome = await client.call('PUT', at(box, '/files?path=/home/user/note'), { raw: content });
      if ('done' in outcome) box.note = new Set([content]);
      else if ('unknown' in outcome) box.note.add(content);
      woken(box, outcome);
      return outcome;
    },
  },
  append: {
    weight: 6,
    async operation({ client, word }, box) {
      const said = word();
      box.words.set(said, false);
      const outcome = await client.call<{ exitCode: number }>('POST', at(box, '/exec'), {
        body: { shell: `echo ${said} >> /home/user/log` },
        idempotencyKey: said,
      });
      if ('done' in outcome && outcome.done.exitCode === 0) box.words.set(said, true);
      if ('refused' in outcome) box.words.delete(said);
      woken(box, outcome);
      return outcome;
    },
  },
  launch: {
    weight: 2,
    async operation({ client, word }, box) {
      const said = word();
      const outcome = await client.call<{ command: { id: string } }>('POST', at(box, '/commands'), {
        body: { shell: `for i in 1 2 3 4 5; do echo ${said}-$i; sleep 0.1; done; exit 7` },
        idempotencyKey: said,
      });
      if ('done' in outcome) {
        const { id } = outcome.done.command;
        box.launched.set(id, { id, output: [1, 2, 3, 4, 5].map((line) => `${said}-${line}\n`).join('') });
      }
      woken(box, outcome);
      return outcome;
    },
  },
  resize: {
    weight: 1,
    async operation({ client, random }, box) {
      const memoryBytes = random.pick([512, 768, 1024]) * 1024 ** 2;
      const outcome = await client.call('PATCH', at(box, ''), { body: { limits: { memoryBytes } } });
      if ('done' in outcome) box.memoryBytes = new Set([memoryBytes]);
      else if ('unknown' in outcome) box.memoryBytes?.add(memoryBytes);
      woken(box, outcome);
      return outcome;
    },
  },
  stop: {
    weight: 1,
    operation({ client }, box) {
      // What it ran is ended by this, and its output may go with it.
      box.launched.clear();
      return change(box, 'stopped', client.call('POST', at(box, '/stop'), { body: { graceMs: 0 } }));
    },
  },
  start: {
    weight: 2,
    operation: ({ client }, box) =>
      change(box, 'active', client.call('POST', at(box, '/start'), { body: {} })),
  },
  pause: {
    weight: 2,
    operation({ client, random, memory }, box) {
      const as = random.pick([
        'frozen',
        'frozen',
        'archived',
        ...(memory ? ['hibernated', 'hibernated', 'hibernated'] : []),
      ]);
      // Without its memory what it ran is not there when it wakes.
      if (as === 'archived' && !memory) box.launched.clear();
      // What is archived is a snapshot that nobody asked for.
      if (as === 'archived') box.unknownSnapshots = true;
      return change(box, 'paused', client.call('POST', at(box, '/pause'), { body: { as } }));
    },
  },
  resume: {
    weight: 2,
    operation: ({ client }, box) =>
      change(box, 'active', client.call('POST', at(box, '/resume'), { body: {} })),
  },
  snapshot: {
    weight: 3,
    operation: ({ client, model, random, memory }, box) =>
      take(client, model, box, '/snapshots', {
        memory: memory && random.chance(0.5) && !box.states.has('stopped'),
      }),
  },
  turn: {
    weight: 3,
    operation: ({ client, model }, box) => take(client, model, box, '/turns', { waitMs: 200 }),
  },
  rollback: {
    weight: 2,
    async operation({ client, random }, box) {
      const snapshot = random.pick([...box.snapshots.values()]);
      if (!snapshot) return { refused: 'nothing', message: '' };
      const before = new Set(box.note);
      box.launched.clear();
      const outcome = await client.call('POST', at(box, '/rollback'), { body: { to: snapshot.id } });
      if ('done' in outcome) box.note = new Set(snapshot.note);
      else if ('unknown' in outcome) box.note = new Set([...before, ...snapshot.note]);
      // The log goes back as well, and which words it had then is not kept here.
      if ('refused' in outcome) {
        perhapsWoken(box);
        // What it was is kept first; on a full disk that is taken away only when there is room.
        if (outcome.refused === 'resource_exhausted') box.unknownSnapshots = true;
      } else {
        for (const word of box.words.keys()) box.words.set(word, false);
        box.unknownSnapshots = true;
        // Processes that ran are gone or not; a paused one stays paused, or is active.
        if (box.states.has('paused')) box.states.add('active').add('stopped');
        // One that has failed is stopped then.
        if (box.hurt) box.states.add('stopped');
      }
      return outcome;
    },
  },
  fork: {
    weight: 1,
    async operation({ client, model, random, memory }, box) {
      const outcome = await client.call<{
        sandboxes: { id: string; state: State }[];
        snapshot: { id: string };
      }>('POST', at(box, '/fork'), {
        body: {
          count: 2,
          memory: memory && random.chance(0.5) && box.states.size === 1 && box.states.has('active'),
        },
      });
      box.unknownSnapshots = true;
      perhapsWoken(box);
      if ('unknown' in outcome) model.unknownChildren = true;
      if ('done' in outcome) {
        for (const { id, state } of outcome.done.sandboxes) {
          const words = new Map([...box.words.keys()].map((word) => [word, false]));
          model.boxes.set(id, { ...newBox(id, { note: box.note, words }), states: new Set([state]) });
        }
      }
      return outcome;
    },
  },
  removeSnapshot: {
    weight: 1,
    async operation({ client, random }, box) {
      const snapshot = random.pick([...box.snapshots.values()]);
      if (!snapshot) return { refused: 'nothing', message: '' };
      const outcome = await client.call('DELETE', `/v1/snapshots/${snapshot.id}`);
      if ('done' in outcome) box.snapshots.delete(snapshot.id);
      else if ('unknown' in outcome) {
        box.snapshots.delete(snapshot.id);
        box.unknownSnapshots = true;
      }
      return outcome;
    },
  },
  remove: {
    weight: 1,
    async operation({ client, model }, box) {
      box.leaving = true;
      const outcome = await client.call('DELETE', at(box, ''));
      if ('done' in outcome) {
        model.boxes.delete(box.id);
        model.removed.add(box.id);
      } else if ('refused' in outcome) box.leaving = false;
      return outcome;
    },
  },
  pair: { weight: 2, operation: (setting, box) => pair(OPERATIONS, setting, box) },
};

async function take(
  client: Client,
  model: Model,
  box: Box,
  path: string,
  body: unknown,
): Promise<Outcome<unknown>> {
  perhapsWoken(box);
  const outcome = await client.call<{ id: string; turn: number | null }>('POST', at(box, path), { body });
  if ('done' in outcome) {
    const { id, turn } = outcome.done;
    if (turn !== null) {
      if (turn <= box.lastTurn)
        model.findings.push(`turn ${turn} of ${box.id} came after turn ${box.lastTurn}`);
      box.lastTurn = turn;
    }
    box.snapshots.set(id, { id, note: new Set(box.note), turn });
  } else if ('unknown' in outcome) box.unknownSnapshots = true;
  return outcome;
}

const WEIGHTED = Object.entries(OPERATIONS).flatMap(([name, { weight }]) => Array<string>(weight).fill(name));

/** The operations that lead to a fault point, by the verb in its name. */
const LEADS: Record<string, readonly string[]> = {
  archive: ['pause', 'resume'],
  clone: ['fork', 'pair'],
  fetch: ['pause', 'resume'],
  fork: ['fork', 'pair'],
  freeze: ['pause'],
  hibernate: ['pause', 'resume'],
  import: ['pause', 'resume'],
  pause: ['pause', 'resume'],
  remove: ['remove'],
  removeSnapshot: ['snapshot', 'removeSnapshot'],
  remove_snapshot: ['snapshot', 'removeSnapshot'],
  restore: ['pause', 'resume'],
  rollback: ['turn', 'rollback', 'pair'],
  snapshot: ['snapshot', 'turn', 'pair'],
  start: ['stop', 'start'],
  stop: ['stop', 'start'],
  wake: ['pause', 'resume'],
};

export function operationsLeadingTo(faultPoint: string): readonly string[] {
  return LEADS[faultPoint.split('.')[1]!] ?? [];
}

export interface Step {
  operation: string;
  box?: string;
  outcome: Outcome<unknown>;
}

/** One operation of one worker. */
export async function step(setting: Setting, most: number): Promise<Step | undefined> {
  const { model, random } = setting;
  const free = [...model.boxes.values()].filter(({ taken, leaving }) => !taken && !leaving);
  if (free.length === 0 || (model.boxes.size < most && random.chance(0.15))) {
    if (model.boxes.size >= most) return undefined;
    return { operation: 'create', outcome: await create(setting) };
  }
  const box = random.pick(free);
  let operation =
    setting.favoured.length > 0 && random.chance(0.5) ? random.pick(setting.favoured) : random.pick(WEIGHTED);
  if (operation === 'fork' && model.boxes.size + 2 > most) operation = 'remove';
  box.taken = true;
  const { underWay } = model;
  underWay.set(operation, (underWay.get(operation) ?? 0) + 1);
  try {
    return { operation, box: box.id, outcome: await OPERATIONS[operation]!.operation(setting, box) };
  } finally {
    underWay.set(operation, underWay.get(operation)! - 1);
    box.taken = false;
  }
}
