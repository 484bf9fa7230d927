/**
 * Compares an installation with the model. What is seen becomes the model's new truth; what cannot be true
 * is a finding.
 */
import type { Client, Outcome } from './client.ts';
import { newBox, type Box, type Model, type State } from './model.ts';

const PATIENCE_TRIES = 40;

interface Listed {
  id: string;
  state: State | 'creating' | 'destroying';
  limits: { memoryBytes: number };
}

export async function check(client: Client, model: Model): Promise<string[]> {
  const findings = model.findings.splice(0);
  const find = (what: string) => void findings.push(what);

  // A creation without an answer is asked for again: it is made once, however often it is asked for.
  for (const key of model.unanswered.keys()) {
    const made = await need(
      () => client.call<{ id: string }>('POST', '/v1/sandboxes', { body: {}, idempotencyKey: key }),
      `create again (${key})`,
      find,
    );
    if (made) model.boxes.set(made.id, model.boxes.get(made.id) ?? newBox(made.id));
  }
  model.unanswered.clear();

  const listed = await settled(client, find);
  for (const [id, { state }] of listed) {
    if (model.boxes.has(id)) continue;
    if (model.removed.has(id)) find(`${id} was removed and is ${state}`);
    else if (model.unknownChildren)
      await need(() => client.call('DELETE', `/v1/sandboxes/${id}`), `remove the child ${id}`, find);
    else find(`${id} is ${state} and nobody made it`);
  }
  model.unknownChildren = false;
  for (const box of model.boxes.values()) {
    const found = listed.get(box.id);
    if (!found) {
      if (!box.leaving) find(`${box.id} is gone`);
      model.boxes.delete(box.id);
      model.removed.add(box.id);
      continue;
    }
    if (box.leaving) {
      // Whether a removal that was cut off had begun is for the server to decide; it is there, so it goes on.
      box.leaving = false;
    }
    if (found.state === 'paused' && performance.now() < model.pressedUntilMs) box.states.add('paused');
    if (box.memoryBytes && !box.memoryBytes.has(found.limits.memoryBytes))
      find(
        `the memory of ${box.id} is ${found.limits.memoryBytes}, not ${[...box.memoryBytes].join(' or ')}`,
      );
    if (box.memoryBytes) box.memoryBytes = new Set([found.limits.memoryBytes]);
    await checkBox(client, box, found.state as State, find);
  }
  const chain = await need(
    () => client.call<{ ok: boolean }>('GET', '/v1/audit/verify'),
    'verify the audit chain',
    find,
  );
  if (chain && !chain.ok) find(`the audit chain is broken: ${JSON.stringify(chain)}`);
  await checkEvents(client, model, find);
  return findings;
}

/** What is being made or removed comes to rest first. */
async function settled(client: Client, find: (what: string) => void): Promise<Map<string, Listed>> {
  for (let tries = 0; ; tries++) {
    const page = await need(
      () => client.call<{ sandboxes: Listed[] }>('GET', '/v1/sandboxes?limit=1000'),
      'list sandboxes',
      find,
    );
    const sandboxes = page?.sandboxes ?? [];
    const moving = sandboxes.filter(({ state }) => state === 'creating' || state === 'destroying');
    if (moving.length === 0 || tries > 100) {
      for (const { id, state } of moving) find(`${id} stays ${state}`);
      return new Map(sandboxes.map((sandbox) => [sandbox.id, sandbox]));
    }
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

async function checkBox(client: Client, box: Box, state: State, find: (what: string) => void): Promise<void> {
  const at = `/v1/sandboxes/${box.id}`;
  // A process that was killed from outside ends its sandbox, and only that may.
  if (!box.states.has(state) && !(box.hurt && state === 'failed'))
    find(`${box.id} is ${state}, not ${[...box.states].join(' or ')}`);
  // What it ran may have ended with it.
  if (state === 'failed' || box.hurt) box.launched.clear();
  if (state === 'stopped' || state === 'failed')
    await need(() => client.call('POST', `${at}/start`, { body: {} }), `start ${box.id}`, find);
  box.states = new Set(['active']);
  const { hurt } = box;
  box.hurt = false;

  // That its processes were killed may have been seen after it was listed.
  for (let tries = 0; hurt && state === 'active' && tries < 3; tries++) {
    await client.text(`${at}/files?path=/home/user/note`);
    await need(() => client.call('POST', `${at}/start`, { body: {} }), `start ${box.id}`, find);
    if ('done' in (await client.text(`${at}/files?path=/home/user/note`))) break;
  }

  const note = await read(client, `${at}/files?path=/home/user/note`, find);
  if (note !== undefined && !box.note.has(note))
    find(`the note of ${box.id} is "${note}", not ${[...box.note].map((one) => `"${one}"`).join(' or ')}`);
  if (note !== undefined) box.note = new Set([note]);

  const log = await read(client, `${at}/files?path=/home/user/log`, find);
  const lines = (log ?? '').split('\n').filter((line) => line !== '');
  if (new Set(lines).size < lines.length) find(`a command of ${box.id} ran twice: ${lines.join(' ')}`);
  for (const [word, acknowledged] of box.words) {
    const there = lines.includes(word);
    if (acknowledged && !there) find(`"${word}" was acknowledged and is not in the log of ${box.id}`);
    // One that is not there may be in a snapshot that the sandbox goes back to.
    box.words.set(word, there);
  }
  for (const line of lines) {
    if (box.words.has(line)) continue;
    find(`"${line}" is in the log of ${box.id} and nobody wrote it`);
    box.words.set(line, true);
  }

  await checkSnapshots(client, box, find);
  for (const { id, output } of box.launched.values()) await checkCommand(client, at, id, output, find);
  box.launched.clear();
}

async function checkSnapshots(client: Client, box: Box, find: (what: string) => void): Promise<void> {
  const page = await need(
    () =>
      client.call<{ snapshots: { id: string; turn: number | null }[] }>(
        'GET',
        `/v1/sandboxes/${box.id}/snapshots?limit=1000`,
      ),
    `list the snapshots of ${box.id}`,
    find,
  );
  const ids = new Set(page?.snapshots.map(({ id }) => id));
  for (const { id } of box.snapshots.values())
    if (page && !ids.has(id)) find(`snapshot ${id} of ${box.id} is gone`);
  for (const { id, turn } of page?.snapshots ?? []) {
    if (!box.snapshots.has(id) && !box.unknownSnapshots)
      find(`snapshot ${id} of ${box.id} was never acknowledged`);
    if (turn !== null) box.lastTurn = Math.max(box.lastTurn, turn);
  }
  box.unknownSnapshots = false;
  // Those that came without an answer are known from now on, though not what is in them.
  for (const id of ids) if (!box.snapshots.has(id)) box.unknownSnapshots = true;
}

async function checkCommand(
  client: Client,
  at: string,
  id: string,
  output: string,
  find: (what: string) => void,
): Promise<void> {
  const outcome = await client.text(`${at}/commands/${id}/output?encoding=utf8`);
  if (!('done' in outcome)) return find(`the output of ${id} cannot be read: ${JSON.stringify(outcome)}`);
  let text = '';
  let end: { exitCode?: number } | undefined;
  for (const line of outcome.done.split('\n')) {
    if (line.trim() === '') continue;
    const event = JSON.parse(line) as { type: string; data?: string; exitCode?: number };
    if (event.type === 'stdout') text += event.data;
    else if (event.type === 'end') end = event;
    else if (event.type === 'gap' || event.type === 'error') find(`the output of ${id} has: ${line}`);
  }
  if (text !== output) find(`the output of ${id} is ${JSON.stringify(text)}, not ${JSON.stringify(output)}`);
  if (end?.exitCode !== 7) find(`the end of ${id} is ${JSON.stringify(end)}, not exit code 7`);
}

/** Every sandbox that exists has an event that tells of its making, and every removed one of its end. */
async function checkEvents(client: Client, model: Model, find: (what: string) => void): Promise<void> {
  const told = { made: new Set<string>(), removed: new Set<string>() };
  for (let after = 0; ;) {
    const page = await need(
      () =>
        client.call<{ events: { id: number; type: string; sandbox: string | null }[]; last: number }>(
          'GET',
          `/v1/events?after=${after}&limit=1000`,
        ),
      'read the events',
      find,
    );
    if (!page || page.events.length === 0) break;
    for (const { type, sandbox } of page.events) {
      if (type === 'sandbox.created' || type === 'sandbox.forked') told.made.add(sandbox!);
      if (type === 'sandbox.removed') told.removed.add(sandbox!);
    }
    after = page.last;
  }
  for (const id of model.boxes.keys()) if (!told.made.has(id)) find(`no event tells of the making of ${id}`);
  for (const id of model.removed)
    if (told.made.has(id) && !told.removed.has(id)) find(`no event tells of the removal of ${id}`);
}

async function read(client: Client, path: string, find: (what: string) => void): Promise<string | undefined> {
  const outcome = await patiently(() => client.text(path));
  if ('done' in outcome) return outcome.done;
  if ('refused' in outcome && outcome.refused === 'not_found') return '';
  find(`${path} cannot be read: ${JSON.stringify(outcome)}`);
  return undefined;
}

/**
 * A server that has just seen a full disk, or little memory, may refuse for a while longer: as any client,
 * this one asks again.
 */
async function patiently<T>(call: () => Promise<Outcome<T>>): Promise<Outcome<T>> {
  for (let tries = 0; ; tries++) {
    const outcome = await call();
    if (!('refused' in outcome) || outcome.refused !== 'resource_exhausted' || tries === PATIENCE_TRIES)
      return outcome;
    await new Promise((resolve) => setTimeout(resolve, 500));
  }
}

async function need<T>(
  call: () => Promise<Outcome<T>>,
  what: string,
  find: (what: string) => void,
): Promise<T | undefined> {
  const outcome = await patiently(call);
  if ('done' in outcome) return outcome.done;
  find(`cannot ${what}: ${JSON.stringify(outcome)}`);
  return undefined;
}
