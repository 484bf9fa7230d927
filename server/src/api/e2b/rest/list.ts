/** Lists sandboxes in the order of their start, with the filters and page tokens of E2B. */
import { CayError, type Sandbox } from '@cay/sdk/protocol';
import { z } from 'zod';
import { OF_BUILD } from '../../../control/templates/builds/build-sandboxes.ts';
import type { Control } from '../../../control/control.ts';
import type { Principal } from '../../../control/tenants/principal.ts';
import { labelOf, parseMetadataFilter } from '../labels.ts';
import { e2bState, templateOf } from './show.ts';

export const ListQuery = z.object({
  metadata: z.string().max(65_536).optional(),
  state: z
    .union([z.string(), z.array(z.string())])
    .transform((given) => [given].flat().flatMap((text) => text.split(',')))
    .pipe(z.array(z.enum(['running', 'paused'])))
    .optional(),
  template: z.string().max(512).optional(),
  startedAfter: z.iso.datetime({ offset: true }).optional(),
  order: z.enum(['asc', 'desc']).default('desc'),
  limit: z.coerce.number().int().min(1).max(100).default(100),
  nextToken: z.string().max(256).optional(),
});
export type ListQuery = z.infer<typeof ListQuery>;

export interface Listing {
  page: Sandbox[];
  nextToken: string | undefined;
  /** Number of all running sandboxes that match, on every page. */
  running: number;
}

const PAGE = 1000;

export async function listSandboxes(
  control: Pick<Control, 'list'>,
  principal: Principal,
  query: ListQuery,
): Promise<Listing> {
  const states: readonly string[] = query.state ?? ['running', 'paused'];
  const after = query.startedAfter === undefined ? -Infinity : Date.parse(query.startedAfter);
  const fitting = (await all(control, principal, query)).filter((sandbox) => {
    const state = e2bState(sandbox.state);
    return (
      state !== undefined &&
      states.includes(state) &&
      (query.template === undefined || templateOf(sandbox) === query.template) &&
      // Sandboxes in which templates are built are not shown.
      sandbox.labels[OF_BUILD] === undefined &&
      startOf(sandbox) >= after
    );
  });
  const sign = query.order === 'asc' ? 1 : -1;
  fitting.sort((a, b) => sign * compare(a, b));
  const from = query.nextToken === undefined ? undefined : parseToken(query.nextToken);
  const rest =
    from === undefined
      ? fitting
      : fitting.filter((sandbox) => sign * comparePlaces(placeOf(sandbox), from) > 0);
  const page = rest.slice(0, query.limit);
  const last = rest.length > page.length ? page.at(-1) : undefined;
  return {
    page,
    nextToken: last && formatToken(placeOf(last)),
    running: fitting.filter(({ state }) => state === 'active').length,
  };
}

async function all(
  control: Pick<Control, 'list'>,
  principal: Principal,
  query: ListQuery,
): Promise<Sandbox[]> {
  const metadata = query.metadata === undefined ? {} : parseMetadataFilter(query.metadata);
  const label = Object.entries(metadata).map(([key, value]) => `${labelOf(key)}=${value}`);
  const sandboxes: Sandbox[] = [];
  let cursor: string | undefined;
  do {
    const page = await control.list(principal, { label, limit: PAGE, cursor });
    sandboxes.push(...page.sandboxes);
    cursor = page.nextCursor ?? undefined;
  } while (cursor !== undefined);
  return sandboxes;
}

interface Place {
  atMs: number;
  id: string;
}

const startOf = ({ startedAtMs, createdAtMs }: Sandbox) => startedAtMs ?? createdAtMs;
const placeOf = (sandbox: Sandbox): Place => ({ atMs: startOf(sandbox), id: sandbox.id });
const compare = (a: Sandbox, b: Sandbox) => comparePlaces(placeOf(a), placeOf(b));
const comparePlaces = (a: Place, b: Place) => a.atMs - b.atMs || (a.id < b.id ? -1 : a.id > b.id ? 1 : 0);

function formatToken({ atMs, id }: Place): string {
  return Buffer.from(`${atMs}:${id}`).toString('base64url');
}

function parseToken(token: string): Place {
  const match = /^(\d{1,15}):(sbx_[a-z0-9]{20})$/.exec(Buffer.from(token, 'base64url').toString());
  if (!match) throw new CayError('invalid_argument', 'The page token is not one that a listing gave');
  return { atMs: Number(match[1]), id: match[2]! };
}
