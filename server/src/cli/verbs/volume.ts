import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { bytesOf, Volume } from '@cay/sdk/client';
import { openClient } from '../lib/client.ts';
import { withCommonOptions } from '../lib/common-options.ts';
import { usageError } from '../lib/failure.ts';
import { colour, print, printJson, printable, table } from '../lib/output.ts';
import { pathError } from '../lib/path-error.ts';
import { showProgress } from '../lib/progress.ts';
import { existsAt, removeEach } from '../lib/remove-each.ts';
import type { CommonOptions } from '../lib/settings.ts';
import { formatAge, formatBytes, pairs, parseSize } from '../lib/units.ts';
import { withServer } from '../lib/with-server.ts';
import { writeOut } from '../lib/write-out.ts';
import { counted, writeWhole } from '../lib/write-whole.ts';
import type { Verb } from '../verb.ts';

type VolumeInfo = Volume['info'];

interface MakeOptions extends CommonOptions {
  size?: number;
  label?: Record<string, string>;
  platform?: string;
}

const REF = 'its name or its id';

export const volumeVerb: Verb = (program, composition) => {
  const command = program.command('volume').description('directories that outlive sandboxes');

  withCommonOptions(
    command
      .command('create')
      .description('create an empty volume')
      .argument('<name>', 'its name, unique in the project')
      .option('--size <size>', 'the most that may be written to it, such as 5g', parseSize)
      .option('-l, --label <key=value>', 'a label; may be repeated', pairs())
      .option('--platform <name>', 'which of several backends has it'),
  )
    .addHelpText('after', '\n  cay volume create data --size 5g\n  cay create --name box -v data:/data')
    .action(async (name: string, { size, label, platform, ...options }: MakeOptions) => {
      const request = {
        name,
        ...(size !== undefined && { sizeBytes: size }),
        ...(label && { labels: label }),
        ...(platform !== undefined && { platform }),
      };
      const made = await withServer(composition, options, (client) => Volume.create(request, client.options));
      show(made.info, options);
    });

  withCommonOptions(command.command('ls').description('list volumes by name')).action(
    async (options: CommonOptions) => {
      const volumes = (await Volume.list(openClient(options).options)).map(({ info }) => info);
      if (options.json) return printJson(volumes);
      const now = Date.now();
      const rows = volumes.map(({ name, readOnly, usedBytes, sizeBytes, mountedBy, createdAtMs }) => [
        printable(name),
        readOnly ? 'snapshot' : 'volume',
        formatBytes(usedBytes),
        sizeBytes === null ? '-' : formatBytes(sizeBytes),
        String(new Set(mountedBy.map(({ sandbox }) => sandbox)).size),
        `${formatAge(Math.max(0, now - createdAtMs))} ago`,
      ]);
      print(table(['NAME', 'KIND', 'USED', 'SIZE', 'SANDBOXES', 'CREATED'], rows));
    },
  );

  withCommonOptions(
    command.command('inspect').description('show all about a volume').argument('<volume>', REF),
  ).action(async (ref: string, options: CommonOptions) => {
    const { info } = await Volume.connect(ref, openClient(options).options);
    if (options.json) return printJson(info);
    for (const [name, value] of linesOf(info)) print(`${colour.bold(name.padEnd(9))} ${printable(value)}`);
  });

  withCommonOptions(
    command
      .command('rm')
      .description('remove volumes that no sandbox has mounted')
      .argument('<volume...>', 'their names or ids'),
  ).action(async (refs: string[], options: CommonOptions) => {
    const { transport } = openClient(options);
    const pathOf = (ref: string) => `/v1/volumes/${encodeURIComponent(ref)}`;
    await removeEach(refs, options, {
      kind: 'Volume',
      list: 'cay volume ls',
      field: 'volume',
      find: existsAt((ref) => transport.json('GET', pathOf(ref))),
      remove: (ref) => transport.request('DELETE', pathOf(ref)),
    });
  });

  withCommonOptions(
    command
      .command('snapshot')
      .description('keep what a volume has now, as a volume that never changes')
      .argument('<volume>', REF)
      .argument('<name>', 'the name of the snapshot'),
  ).action(async (ref: string, name: string, options: CommonOptions) => {
    const volume = await Volume.connect(ref, openClient(options).options);
    show((await volume.snapshot(name)).info, options);
  });

  withCommonOptions(
    command
      .command('clone')
      .description('create a volume that begins with what another, or a snapshot, has now')
      .argument('<volume>', REF)
      .argument('<name>', 'the name of the clone')
      .option('--size <size>', 'the most that may be in it (default: as the other)', parseSize),
  ).action(async (ref: string, name: string, { size, ...options }: MakeOptions) => {
    const volume = await Volume.connect(ref, openClient(options).options);
    show((await volume.clone(name, size === undefined ? {} : { sizeBytes: size })).info, options);
  });

  withCommonOptions(
    command
      .command('export')
      .description('write all that a volume has to a tar archive')
      .argument('<volume>', REF)
      .option('-o, --output <file>', 'where to (default: standard output)'),
  ).action(async (ref: string, { output, ...options }: CommonOptions & { output?: string }) => {
    if (output === undefined && process.stdout.isTTY)
      throw usageError('An archive is not for a terminal', 'give a file with --output, or a pipe');
    const { transport } = openClient(options);
    const body = bytesOf(await transport.request('GET', `/v1/volumes/${encodeURIComponent(ref)}/archive`));
    if (output === undefined) return writeOut(body);
    const progress = showProgress(`${output} ←`);
    await writeWhole(output, counted(body, progress.bytes), { mode: 0o600 });
    progress.finish();
    if (options.json) printJson({ file: output });
  });

  withCommonOptions(
    command
      .command('import')
      .description('create a volume of a tar archive')
      .argument('<name>', 'its name')
      .argument('<file>', 'the archive, or - for standard input')
      .option('--size <size>', 'the most that may be in it, such as 5g', parseSize),
  ).action(async (name: string, file: string, { size, ...options }: MakeOptions) => {
    const { body, bytes } = await archiveOf(file);
    const progress = showProgress(`${file} →`, bytes);
    const made = await withServer(composition, options, (client) =>
      Volume.import(counted(body, progress.bytes), {
        ...client.options,
        name,
        ...(size !== undefined && { sizeBytes: size }),
      }),
    ).finally(() => progress.finish());
    show(made.info, options);
  });
};

function show(volume: VolumeInfo, options: CommonOptions): void {
  if (options.json) printJson(volume);
  else print(volume.name);
}

async function archiveOf(file: string): Promise<{ body: AsyncIterable<Uint8Array>; bytes?: number }> {
  if (file === '-') return { body: process.stdin };
  try {
    const { size } = await stat(file);
    return { body: createReadStream(file, { highWaterMark: 256 * 1024 }), bytes: size };
  } catch (error) {
    throw pathError('read', file, error);
  }
}

function linesOf(volume: VolumeInfo): [string, string][] {
  const { id, name, readOnly, usedBytes, sizeBytes, from, platform, mountedBy, createdAtMs } = volume;
  return [
    ['id', id],
    ['name', name],
    ['kind', readOnly ? 'a snapshot, which never changes' : 'a volume'],
    ['used', usedBytes === null ? 'unknown' : formatBytes(usedBytes)],
    ['size', sizeBytes === null ? 'no limit of its own' : formatBytes(sizeBytes)],
    ...(from === null ? [] : ([['from', from]] as [string, string][])),
    ...(platform === undefined ? [] : ([['platform', platform]] as [string, string][])),
    ['created', new Date(createdAtMs).toISOString()],
    ...mountedBy.map(({ sandbox, name: called, path, readOnly: only }): [string, string] => [
      'mounted',
      `${called ?? sandbox} at ${path}${only ? ', read-only' : ''}`,
    ]),
  ];
}
