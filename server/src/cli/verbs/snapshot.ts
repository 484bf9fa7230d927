/** Snapshots: taking, listing, removing, and moving them as archives. */
import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { bytesOf, type ImportedSnapshot, type Snapshot, type SnapshotPage } from '@cay/sdk/client';
import { openClient } from '../lib/client.ts';
import { withCommonOptions } from '../lib/common-options.ts';
import { counted, writeWhole } from '../lib/write-whole.ts';
import { colour, note, print, printJson, printable, table } from '../lib/output.ts';
import { pathError } from '../lib/path-error.ts';
import { showProgress } from '../lib/progress.ts';
import { existsAt, removeEach } from '../lib/remove-each.ts';
import type { CommonOptions } from '../lib/settings.ts';
import { formatAge, formatBytes, pairs } from '../lib/units.ts';
import type { Verb } from '../verb.ts';

type TakeOptions = CommonOptions & { name?: string; label?: Record<string, string>; memory?: boolean };

type LoadOptions = CommonOptions & { name?: string; platform?: string; trustMemory?: boolean };

const WHY_DROPPED: Record<NonNullable<ImportedSnapshot['memoryDropped']>, string> = {
  unsigned: 'it is not signed; an admin can pass --trust-memory',
  foreign: 'another installation has signed it; an admin can pass --trust-memory',
  runtime: 'the isolation that it is of is not here',
};

export const snapshotVerb: Verb = (program) => {
  const command = program.command('snapshot').description('what sandboxes were at one moment');

  const take = command
    .command('take', { isDefault: true })
    .description('keep what a sandbox is now, and print the id; the word "take" may be left out')
    .argument('<sandbox>', 'its id, name or the beginning of its id')
    .option('--name <name>', 'a name; named snapshots are never removed by retention')
    .option('--memory', 'keep its processes too')
    .option('-l, --label <key=value>', 'a label; may be repeated', pairs());
  withCommonOptions(take).action(async (ref: string, options: TakeOptions) => {
    const { name, label, memory } = options;
    const sandbox = await openClient(options).sandbox(ref);
    const snapshot = await sandbox.snapshot({
      ...(name !== undefined && { name }),
      ...(label && { labels: label }),
      ...(memory && { memory }),
    });
    if (options.json) printJson(snapshot);
    else print(snapshot.id);
  });

  const list = command
    .command('ls')
    .description('list snapshots, newest first')
    .argument('[sandbox]', 'only those of this one');
  withCommonOptions(list).action(async (ref: string | undefined, options: CommonOptions) => {
    const client = openClient(options);
    const sandbox = ref === undefined ? undefined : (await client.sandbox(ref)).id;
    const found: Snapshot[] = [];
    let cursor: string | undefined;
    do {
      const page = await client.transport.json<SnapshotPage>('GET', '/v1/snapshots', {
        query: { sandbox, cursor },
      });
      found.push(...page.snapshots);
      cursor = page.nextCursor ?? undefined;
    } while (cursor !== undefined);
    if (options.json) return printJson(found);
    const now = Date.now();
    const rows = found.map((snapshot) => [
      snapshot.id,
      snapshot.turn === null ? colour.dim('-') : String(snapshot.turn),
      snapshot.name === null ? colour.dim('-') : printable(snapshot.name),
      snapshot.memory ? 'files, memory' : 'files',
      formatBytes(snapshot.bytes),
      snapshot.cause,
      snapshot.sandbox,
      formatAge(now - snapshot.createdAtMs),
    ]);
    print(table(['ID', 'TURN', 'NAME', 'HAS', 'SIZE', 'CAUSE', 'SANDBOX', 'AGE'], rows));
  });

  const remove = command
    .command('rm')
    .description('remove snapshots that no sandbox or template needs')
    .argument('<snapshot...>', 'their ids');
  withCommonOptions(remove).action(async (ids: string[], options: CommonOptions) => {
    const { transport } = openClient(options);
    const pathOf = (id: string) => `/v1/snapshots/${encodeURIComponent(id)}`;
    await removeEach(ids, options, {
      kind: 'Snapshot',
      list: 'cay snapshot ls',
      field: 'id',
      find: existsAt((id) => transport.json('GET', pathOf(id))),
      remove: (id) => transport.json('DELETE', pathOf(id)),
    });
  });

  const save = command
    .command('save')
    .description('write a snapshot to a file that another machine can load')
    .argument('<snapshot>', 'its id')
    .argument('<file>', 'where to');
  withCommonOptions(save).action(async (id: string, file: string, options: CommonOptions) => {
    const response = await openClient(options).transport.request(
      'GET',
      `/v1/snapshots/${encodeURIComponent(id)}/archive`,
    );
    const progress = showProgress(`${id} →`);
    let bytes = 0;
    await writeWhole(
      file,
      counted(bytesOf(response), (count) => progress.bytes((bytes = count))),
      { mode: 0o600 },
    );
    progress.finish();
    if (options.json) printJson({ id, file, bytes });
  });

  const load = command
    .command('load')
    .description('take in a snapshot from a file, and print its id')
    .argument('<file>', 'as "cay snapshot save" wrote it')
    .option('--name <name>', 'a name for it')
    .option('--platform <name>', 'which of several backends takes it in (default: the first)')
    .option('--trust-memory', 'take in processes that this installation has not signed; needs an admin key');
  withCommonOptions(load).action(async (file: string, options: LoadOptions) => {
    const { size } = await stat(file).catch((cause: unknown) => {
      throw pathError('read', file, cause);
    });
    const progress = showProgress(`${file} →`, size);
    const snapshot = await openClient(options).transport.json<ImportedSnapshot>('POST', '/v1/snapshots', {
      query: {
        name: options.name,
        platform: options.platform,
        ...(options.trustMemory && { allowForeignMemory: '1' }),
      },
      body: counted(createReadStream(file, { highWaterMark: 256 * 1024 }), (count) => progress.bytes(count)),
      headers: { 'content-type': 'application/vnd.cay.snapshot' },
    });
    progress.finish();
    if (snapshot.memoryDropped !== null)
      note(`the memory of the archive was left out: ${WHY_DROPPED[snapshot.memoryDropped]}`);
    if (options.json) printJson(snapshot);
    else print(snapshot.id);
  });
};
