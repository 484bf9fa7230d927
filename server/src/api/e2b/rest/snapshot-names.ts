/**
 * Names of snapshots. A name is a template of the project, `name` or `name:tag`; the id of a snapshot that
 * has one is the name with its tag, so that it stays the same when the name is given to a newer snapshot.
 */
import { CayError, isCayError, isId, type Snapshot, type SnapshotId } from '@cay/sdk/protocol';
import type { Control } from '../../../control/control.ts';
import type { Principal } from '../../../control/tenants/principal.ts';
import { parseE2bId } from '../sandbox-id.ts';
import { DEFAULT_TAG, formatTemplateRef, parseTemplateRef } from './templates/template-name.ts';

const STAYS = ['not_found', 'failed_precondition', 'conflict'] as const;

/** The id of a snapshot without a name. Clients may add the tag that every template has. */
export function snapshotIdOf(text: string): SnapshotId | undefined {
  const bare = text.endsWith(`:${DEFAULT_TAG}`) ? text.slice(0, -DEFAULT_TAG.length - 1) : text;
  return isId('snap', bare) ? (bare as SnapshotId) : undefined;
}

/** `own` are its names, the one that is meant first. */
export function showSnapshot({ id }: Pick<Snapshot, 'id'>, own: readonly string[]) {
  const [first] = own;
  if (first === undefined) return { snapshotID: id, names: [] };
  const names = new Set(own.map((name) => parseTemplateRef(name).name));
  return { snapshotID: first.includes(':') ? first : `${first}:${DEFAULT_TAG}`, names: [...names] };
}

export async function nameIt(
  control: Control,
  principal: Principal,
  name: string,
  { id }: Snapshot,
): Promise<void> {
  try {
    await control.saveTemplate(principal, name, { snapshot: id, replace: true });
  } catch (error) {
    await control.removeSnapshot(principal, id);
    throw error;
  }
}

/** Template names by snapshot. */
export async function namesOf(control: Control, principal: Principal): Promise<Map<string, string[]>> {
  const names = new Map<string, string[]>();
  for (const { name, snapshot } of await control.templates(principal)) {
    if (snapshot !== null) names.set(snapshot, [...(names.get(snapshot) ?? []), name]);
  }
  return names;
}

/**
 * Removes a name with all its tags, and the snapshots that no other name has. Snapshots that sandboxes are
 * based on stay.
 */
export async function removeNamed(
  control: Control,
  principal: Principal,
  given: string,
  names: Map<string, string[]>,
): Promise<void> {
  const meant = meantBy(given);
  const found = [...names].filter(([, own]) => own.some(meant));
  if (found.length === 0) throw new CayError('not_found', `Template "${given.slice(0, 80)}" does not exist`);
  for (const [snapshot, own] of found) {
    for (const name of own.filter(meant)) await control.removeTemplate(principal, name);
    if (!own.every(meant)) continue;
    await control.removeSnapshot(principal, snapshot).catch((error: unknown) => {
      if (!STAYS.some((code) => isCayError(error, code))) throw error;
    });
  }
}

/** What a name, a name with a tag, or an id means. A name alone means the newest that has it. */
export async function named(
  control: Control,
  principal: Principal,
  given: string,
  names: Map<string, string[]>,
  sandbox: string | undefined,
) {
  const id = snapshotIdOf(given);
  const meant = id === undefined ? meantBy(given) : undefined;
  const found: { snapshot: Snapshot; own: string[] }[] = [];
  for (const [candidate, own] of id === undefined ? names : [[id, names.get(id) ?? []] as const]) {
    const fitting = meant ? own.filter(meant) : own;
    if (id === undefined && fitting.length === 0) continue;
    const snapshot = await find(control, principal, candidate);
    if (snapshot && (sandbox === undefined || snapshot.sandbox === parseE2bId(sandbox)))
      found.push({ snapshot, own: [...fitting, ...own.filter((name) => !fitting.includes(name))] });
  }
  found.sort((a, b) => b.snapshot.createdAtMs - a.snapshot.createdAtMs);
  return found.slice(0, 1).map(({ snapshot, own }) => showSnapshot(snapshot, own));
}

/** What cannot be a name is the name of nothing. */
function meantBy(given: string): (name: string) => boolean {
  let ref;
  try {
    ref = parseTemplateRef(given);
  } catch {
    return () => false;
  }
  const exact = formatTemplateRef(ref);
  const anyTag = ref.tag === undefined ? `${ref.name}:` : undefined;
  return (name) => name === exact || (anyTag !== undefined && name.startsWith(anyTag));
}

async function find(control: Control, principal: Principal, id: string): Promise<Snapshot | undefined> {
  try {
    return await control.getSnapshot(principal, id);
  } catch (error) {
    if (isCayError(error, 'not_found')) return undefined;
    throw error;
  }
}
