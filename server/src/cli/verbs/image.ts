import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import type { Image, ImagePage, PullLine } from '@cay/sdk/client';
import { pack } from '../lib/archive/pack.ts';
import { openClient } from '../lib/client.ts';
import { withCommonOptions } from '../lib/common-options.ts';
import { colour, print, printJson, printable, table } from '../lib/output.ts';
import { pathError } from '../lib/path-error.ts';
import { showProgress } from '../lib/progress.ts';
import { followPull } from '../lib/pull-bars.ts';
import type { CommonOptions } from '../lib/settings.ts';
import { formatAge, formatBytes } from '../lib/units.ts';
import { withServer } from '../lib/with-server.ts';
import { counted } from '../lib/write-whole.ts';
import type { Verb } from '../verb.ts';

const MEDIA = { 'content-type': 'application/x-tar' };

export const imageVerb: Verb = (program, composition) => {
  const command = program.command('image').description('images that sandboxes can be made from');

  withCommonOptions(
    command
      .command('pull')
      .description('fetch what a registry has under a name now')
      .argument('<image...>', 'such as python:3.12-slim'),
  ).action(async (names: string[], options: CommonOptions) => {
    for (const image of names) {
      const images = await withServer(composition, options, ({ transport }) =>
        followPull(image, transport.lines<PullLine>('POST', '/v1/images/pull', { json: { image } })),
      );
      for (const each of images) show(each, options);
    }
  });

  withCommonOptions(command.command('ls').description('list images, the last used first')).action(
    async (options: CommonOptions) => {
      const { images } = await openClient(options).transport.json<ImagePage>('GET', '/v1/images');
      if (options.json) return printJson(images);
      const now = Date.now();
      const rows = images
        .sort((a, b) => b.usedAtMs - a.usedAtMs)
        .flatMap(({ names, digest, sizeBytes, layers, usedAtMs }) =>
          names.map((name) => [
            printable(name),
            digest.slice('sha256:'.length, 'sha256:'.length + 12),
            formatBytes(sizeBytes),
            String(layers),
            `${formatAge(Math.max(0, now - usedAtMs))} ago`,
          ]),
        );
      print(table(['NAME', 'DIGEST', 'SIZE', 'LAYERS', 'USED'], rows));
    },
  );

  withCommonOptions(
    command
      .command('inspect')
      .description('show all about an image')
      .argument('<image>', 'its name or its digest'),
  ).action(async (image: string, options: CommonOptions) => {
    const found = await openClient(options).transport.json<Image>('GET', '/v1/images/inspect', {
      query: { image },
    });
    if (options.json) return printJson(found);
    for (const [name, value] of linesOf(found)) print(`${colour.bold(name.padEnd(11))} ${printable(value)}`);
  });

  withCommonOptions(
    command
      .command('rm')
      .description('remove images that nothing was made from')
      .argument('<image...>', 'their names'),
  ).action(async (names: string[], options: CommonOptions) => {
    const { transport } = openClient(options);
    for (const image of names) {
      await transport.request('DELETE', '/v1/images', { query: { image } });
      if (options.json) printJson({ image });
      else print(image);
    }
  });

  withCommonOptions(
    command
      .command('import')
      .description('take in an archive of "docker save", an OCI layout, or a root filesystem')
      .argument('<file>', 'an archive, the directory of a layout, or - for standard input')
      .option('--name <image>', 'what it is to be called (default: what the archive says)'),
  )
    .addHelpText(
      'after',
      `
  cay image import image.tar
  docker save my-image:1 | cay image import -
  ctr images export - docker.io/library/alpine:3 | cay image import -
  cay image import rootfs.tar.gz --name my-root:1`,
    )
    .action(async (file: string, options: CommonOptions & { name?: string }) => {
      const { body, bytes } = await archiveOf(file);
      const progress = showProgress(`${file} →`, bytes);
      const lines = await withServer(composition, options, async ({ transport }) =>
        transport.lines<PullLine>('POST', '/v1/images/import', {
          headers: MEDIA,
          query: { name: options.name },
          body: counted(body, progress.bytes),
        }),
      );
      const images = await followPull(file, lines).finally(() => progress.finish());
      for (const each of images) show(each, options);
    });
};

function show(image: Image, options: CommonOptions): void {
  if (options.json) return printJson(image);
  for (const name of image.names) print(`${printable(name)} ${colour.dim(image.digest)}`);
}

async function archiveOf(file: string): Promise<{ body: AsyncIterable<Uint8Array>; bytes?: number }> {
  if (file === '-') return { body: process.stdin };
  try {
    const found = await stat(file);
    if (found.isDirectory()) return { body: pack(file) };
    return { body: createReadStream(file, { highWaterMark: 256 * 1024 }), bytes: found.size };
  } catch (error) {
    throw pathError('read', file, error);
  }
}

function linesOf({ names, digest, sizeBytes, layers, config, usedAtMs }: Image): [string, string][] {
  const command = [...config.entrypoint, ...config.cmd];
  return [
    ...names.map((name): [string, string] => ['name', name]),
    ['digest', digest],
    ['size', `${formatBytes(sizeBytes)} in ${layers} layers`],
    ['used', `${formatAge(Math.max(0, Date.now() - usedAtMs))} ago`],
    ['user', config.user === '' ? 'none of its own' : config.user],
    ['workdir', config.workdir === '' ? 'none of its own' : config.workdir],
    ...(command.length > 0 ? [['command', command.join(' ')] as [string, string]] : []),
    ...config.env.map((line): [string, string] => ['env', line]),
    ...config.ports.map((port): [string, string] => ['port', String(port)]),
    ...config.volumes.map((volume): [string, string] => ['volume', volume]),
  ];
}
