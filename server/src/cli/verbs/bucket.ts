import { Bucket } from '@cay/sdk/client';
import type { Command } from 'commander';
import { openClient } from '../lib/client.ts';
import { withCommonOptions } from '../lib/common-options.ts';
import { usageError } from '../lib/failure.ts';
import { note, print, printJson, printable, table } from '../lib/output.ts';
import { existsAt, removeEach } from '../lib/remove-each.ts';
import type { CommonOptions } from '../lib/settings.ts';
import { formatAge, formatBytes } from '../lib/units.ts';
import { withServer } from '../lib/with-server.ts';
import type { Composition, Verb } from '../verb.ts';

interface AddOptions extends CommonOptions {
  accessKeyId: string;
  secret: string;
  sessionToken?: string;
  region?: string;
  endpoint?: string;
  style?: 'path' | 'host';
  readOnly?: true;
}

const NAME = 'its name in the project';

export const bucketVerb: Verb = (program, composition) => {
  const command = program.command('bucket').description('files of sandboxes on S3 servers');
  addAdd(command, composition);
  addLs(command);
  addRm(command);
  addImport(command);
  addExport(command);
  addSign(command);
  addStatus(command);
  addSync(command);
  addDetach(command);
};

function addAdd(command: Command, composition: Composition): void {
  withCommonOptions(
    command
      .command('add')
      .description('give a bucket on an S3 server a name in the project')
      .argument('<name>', NAME)
      .argument('<address>', 's3://bucket or s3://bucket/prefix')
      .requiredOption('--access-key-id <id>', 'the id of the access key')
      .requiredOption('--secret <name>', 'the stored secret that has the secret access key')
      .option('--session-token <name>', 'the stored secret that has the session token')
      .option('--region <region>', 'such as eu-west-1 (default: us-east-1)')
      .option('--endpoint <url>', 'the S3 server (default: that of AWS)')
      .option('--style <style>', "path or host: where the bucket's name is")
      .option('--read-only', 'never write to it'),
  )
    .addHelpText(
      'after',
      '\n  cay secret set s3-key < key.txt\n  cay bucket add data s3://my-bucket/input --region eu-west-1 --access-key-id AKIA… --secret s3-key\n  cay create --bucket data:/home/user/data',
    )
    .action(async (name: string, address: string, options: AddOptions) => {
      const { accessKeyId, secret, sessionToken, region, endpoint, style, readOnly, ...common } = options;
      const [, bucket, prefix] = /^s3:\/\/([^/?#]+)(?:\/(.*))?$/.exec(address) ?? [];
      if (bucket === undefined)
        throw usageError(`"${address}" is no address of a bucket`, 's3://bucket/prefix');
      const request = {
        name,
        bucket,
        accessKeyId,
        secret,
        ...(prefix && { prefix }),
        ...(sessionToken !== undefined && { sessionToken }),
        ...(region !== undefined && { region }),
        ...(endpoint !== undefined && { endpoint }),
        ...(style !== undefined && { style }),
        ...(readOnly && { readOnly }),
      };
      const made = await withServer(composition, common, (client) => Bucket.create(request, client.options));
      if (common.json) return printJson(made.info);
      print(made.name);
    });
}

function addLs(command: Command): void {
  withCommonOptions(
    command
      .command('ls')
      .description("list the project's buckets, or objects of one")
      .argument('[name]', NAME)
      .argument('[prefix]', 'objects whose keys begin so')
      .option('-r, --recursive', 'all below, and no folders'),
  ).action(
    async (
      name: string | undefined,
      prefix: string | undefined,
      options: CommonOptions & { recursive?: true },
    ) => {
      const { recursive, ...common } = options;
      const client = openClient(common).options;
      if (name === undefined) {
        const buckets = (await Bucket.list(client)).map(({ info }) => info);
        if (common.json) return printJson(buckets);
        const rows = buckets.map((info) => [
          printable(info.name),
          printable(`s3://${info.bucket}/${info.prefix ?? ''}`),
          printable(info.endpoint ?? `AWS ${info.region ?? 'us-east-1'}`),
          info.readOnly ? 'read-only' : 'read-write',
        ]);
        return print(table(['NAME', 'BUCKET', 'AT', 'ACCESS'], rows));
      }
      const bucket = await Bucket.connect(name, client);
      const { objects, more } = await bucket.objects({
        ...(prefix !== undefined && { prefix }),
        ...(recursive && { recursive }),
        limit: 10_000,
      });
      if (common.json) return printJson({ objects, more });
      const now = Date.now();
      const rows = objects.map(({ key, sizeBytes, modifiedAtMs }) => [
        printable(key),
        key.endsWith('/') ? '-' : formatBytes(sizeBytes),
        modifiedAtMs === 0 ? '-' : `${formatAge(Math.max(0, now - modifiedAtMs))} ago`,
      ]);
      print(table(['KEY', 'SIZE', 'MODIFIED'], rows));
      if (more) note('there are more: give a longer prefix');
    },
  );
}

function addRm(command: Command): void {
  withCommonOptions(
    command
      .command('rm')
      .description('forget buckets; their objects stay')
      .argument('<name...>', 'their names'),
  ).action(async (names: string[], options: CommonOptions) => {
    const { transport } = openClient(options);
    const pathOf = (name: string) => `/v1/buckets/${encodeURIComponent(name)}`;
    await removeEach(names, options, {
      kind: 'Bucket',
      list: 'cay bucket ls',
      field: 'bucket',
      find: existsAt((name) => transport.json('GET', pathOf(name))),
      remove: (name) => transport.request('DELETE', pathOf(name)),
    });
  });
}

function addImport(command: Command): void {
  withCommonOptions(
    command
      .command('import')
      .description('copy objects into a directory of a sandbox')
      .argument('<bucket>', 'its name, or NAME:PREFIX for what is below a prefix')
      .argument('<target>', 'SANDBOX:/directory'),
  )
    .addHelpText('after', '\n  cay bucket import data:2026 box:/home/user/data')
    .action(async (source: string, target: string, options: CommonOptions) => {
      const { name, ...copy } = { ...bucketOf(source), ...directoryOf(target) };
      const bucket = await Bucket.connect(name, openClient(options).options);
      show(await bucket.import(copy), options);
    });
}

function addExport(command: Command): void {
  withCommonOptions(
    command
      .command('export')
      .description('copy the files of a directory of a sandbox into a bucket')
      .argument('<source>', 'SANDBOX:/directory')
      .argument('<bucket>', 'its name, or NAME:PREFIX for below a prefix'),
  )
    .addHelpText('after', '\n  cay bucket export box:/home/user/results data:results')
    .action(async (source: string, target: string, options: CommonOptions) => {
      const { name, ...copy } = { ...bucketOf(target), ...directoryOf(source) };
      const bucket = await Bucket.connect(name, openClient(options).options);
      show(await bucket.export(copy), options);
    });
}

function addSign(command: Command): void {
  withCommonOptions(
    command
      .command('sign')
      .description('print an address with which anybody may read or write one object, until it expires')
      .argument('<name>', NAME)
      .argument('<key>', 'the key of the object')
      .option('--put', 'to write it')
      .option('--expires <seconds>', 'how long it is good for', Number, 3600),
  ).action(async (name: string, key: string, options: CommonOptions & { put?: true; expires: number }) => {
    const { put, expires: expiresSeconds, ...common } = options;
    const bucket = await Bucket.connect(name, openClient(common).options);
    const signed = await bucket.sign({ key, method: put ? 'PUT' : 'GET', expiresSeconds });
    if (common.json) return printJson(signed);
    print(signed.url);
  });
}

function addStatus(command: Command): void {
  withCommonOptions(
    command
      .command('status')
      .description('show the copies of buckets that a sandbox has, and its mounts')
      .argument('<sandbox>', 'its name or its id'),
  ).action(async (ref: string, options: CommonOptions) => {
    const connection = openClient(options).options;
    await showStates(await Bucket.syncs(ref, connection), ref, options);
  });
}

function addSync(command: Command): void {
  withCommonOptions(
    command
      .command('sync')
      .description('write what a sandbox changed to its buckets now')
      .argument('<sandbox>', 'its name or its id'),
  ).action(async (ref: string, options: CommonOptions) => {
    await showStates(await Bucket.sync(ref, openClient(options).options), ref, options);
  });
}

function addDetach(command: Command): void {
  withCommonOptions(
    command
      .command('detach')
      .description('keep the files of a copy, and write nothing of them to the bucket any more')
      .argument('<sandbox>', 'its name or its id')
      .argument('<path>', 'the directory of the copy'),
  ).action(async (ref: string, path: string, options: CommonOptions) => {
    await Bucket.detach(ref, path, openClient(options).options);
    if (options.json) printJson({ sandbox: ref, path });
    else print(path);
  });
}

function bucketOf(text: string): { name: string; prefix?: string } {
  const [, name, prefix] = /^([^:/]+)(?::(.*?)\/?)?$/.exec(text) ?? [];
  if (name === undefined)
    throw usageError(`"${text}" is no bucket of the project`, 'give NAME or NAME:PREFIX');
  return { name, ...(prefix && { prefix }) };
}

function directoryOf(text: string): { sandbox: string; path: string } {
  const [, sandbox, path] = /^([^:/]+):(\/.+?)\/?$/.exec(text) ?? [];
  if (sandbox === undefined || path === undefined)
    throw usageError(`"${text}" is no directory of a sandbox`, 'give SANDBOX:/directory');
  return { sandbox, path };
}

function show(done: Awaited<ReturnType<Bucket['import']>>, options: CommonOptions): void {
  if (options.json) return printJson(done);
  print(`${done.files} ${done.files === 1 ? 'file' : 'files'}, ${formatBytes(done.bytes)}`);
  if (done.skipped > 0) note(`${done.skipped} were no files, and were left out`);
}

async function showStates(
  states: Awaited<ReturnType<typeof Bucket.syncs>>,
  ref: string,
  options: CommonOptions,
): Promise<void> {
  const mounts = await Bucket.mounts(ref, openClient(options).options);
  if (options.json) return printJson([...states, ...mounts]);
  const now = Date.now();
  const rows = states.map(({ bucket, path, direction, files, pending, syncedAtMs, error }) => [
    printable(bucket),
    printable(path),
    direction,
    String(files),
    pending ? 'yes' : 'no',
    syncedAtMs === null ? 'never' : `${formatAge(Math.max(0, now - syncedAtMs))} ago`,
    error === null ? '-' : printable(error),
  ]);
  if (rows.length > 0 || mounts.length === 0)
    print(table(['BUCKET', 'PATH', 'DIRECTION', 'FILES', 'PENDING', 'SYNCED', 'ERROR'], rows));
  if (mounts.length === 0) return;
  const mounted = mounts.map(({ bucket, path, readOnly, ended, unwrittenFiles, unwrittenBytes, error }) => [
    printable(bucket),
    printable(path),
    ended ? 'ended' : readOnly ? 'read-only' : 'mounted',
    unwrittenFiles === 0 ? '-' : `${unwrittenFiles} (${formatBytes(unwrittenBytes)})`,
    error === null ? '-' : printable(error),
  ]);
  print(table(['BUCKET', 'PATH', 'MOUNT', 'UNWRITTEN', 'ERROR'], mounted));
}
