/**
 * `cay template export` and `import`. The file is one line that says what the template is, and then the
 * archive of its snapshot.
 */
import { createReadStream } from 'node:fs';
import type { Command } from 'commander';
import { bytesOf, CayError, isCayError, type ImportedSnapshot } from '@cay/sdk/client';
import type { Template, TemplatePage } from '@cay/sdk/protocol';
import { openClient } from '../lib/client.ts';
import { withCommonOptions } from '../lib/common-options.ts';
import { withHint } from '../lib/failure.ts';
import { note, print, printable, printJson } from '../lib/output.ts';
import { pathError } from '../lib/path-error.ts';
import { showProgress } from '../lib/progress.ts';
import type { CommonOptions } from '../lib/settings.ts';
import { secretRules } from '../lib/secret-rules.ts';
import { counted, writeWhole } from '../lib/write-whole.ts';

interface Header {
  format: 'cay-template';
  version: 1;
  template: Pick<Template, 'name' | 'network' | 'config'>;
}

const MOST_HEADER_BYTES = 1024 * 1024;

export function addArchives(command: Command): void {
  withCommonOptions(
    command
      .command('export')
      .description('write a template to a file that another server can import')
      .argument('<name>', 'a template of yours')
      .argument('<file>', 'where to'),
  ).action(async (name: string, file: string, options: CommonOptions) => {
    const { transport } = openClient(options);
    const { templates } = await transport.json<TemplatePage>('GET', '/v1/templates');
    const found = templates.find((each) => each.name === name);
    if (!found) throw new CayError('not_found', `Template "${name}" does not exist`);
    if (found.snapshot === null)
      throw new CayError(
        'failed_precondition',
        `Template "${name}" is the server's own, and every server has it`,
      );
    const { network, config } = found;
    const header: Header = {
      format: 'cay-template',
      version: 1,
      template: { name, network, ...(config && { config }) },
    };
    const response = await transport.request('GET', `/v1/snapshots/${found.snapshot}/archive`);
    const progress = showProgress(`${name} →`);
    async function* whole() {
      yield Buffer.from(`${JSON.stringify(header)}\n`);
      yield* bytesOf(response);
    }
    let bytes = 0;
    await writeWhole(
      file,
      counted(whole(), (count) => progress.bytes((bytes = count))),
      { mode: 0o600 },
    );
    progress.finish();
    if (options.json) printJson({ name, file, bytes });
  });

  withCommonOptions(
    command
      .command('import')
      .description('take in a template from a file, and print its name')
      .argument('<file>', 'as "cay template export" wrote it')
      .option('--name <name>', 'how it will be called (default: as it was)')
      .option('--replace', 'point a template of that name to it')
      .option('--platform <name>', 'which of several backends takes it in (default: the first)')
      .option('--trust-memory', 'take in processes that this installation has not signed; needs an admin key')
      .option('--trust-secrets', 'take in rules that put secrets of the project on requests'),
  ).action(
    async (
      file: string,
      options: CommonOptions & {
        name?: string;
        replace?: boolean;
        platform?: string;
        trustMemory?: boolean;
        trustSecrets?: boolean;
      },
    ) => {
      const { transport } = openClient(options);
      const { header, archive } = await openTemplate(file);
      if (!options.trustSecrets) requireNoSecrets(file, header);
      const progress = showProgress(`${file} →`);
      const snapshot = await transport.json<ImportedSnapshot>('POST', '/v1/snapshots', {
        query: { platform: options.platform, ...(options.trustMemory && { allowForeignMemory: '1' }) },
        body: counted(archive, (count) => progress.bytes(count)),
        headers: { 'content-type': 'application/vnd.cay.snapshot' },
      });
      progress.finish();
      if (snapshot.memoryDropped !== null)
        note('the memory of the template was left out: its processes do not run');
      const { network, config } = header.template;
      const json = {
        snapshot: snapshot.id,
        replace: options.replace ?? false,
        ...(network !== null && { network }),
        ...(config && { config }),
      };
      const name = options.name ?? header.template.name;
      try {
        const path = `/v1/templates/${encodeURIComponent(name)}`;
        const template = await transport.json<Template>('PUT', path, { json });
        if (options.json) printJson(template);
        else print(template.name);
      } catch (error) {
        await transport.json('DELETE', `/v1/snapshots/${snapshot.id}`).catch(() => {});
        if (!isCayError(error, 'already_exists')) throw error;
        throw withHint(error, 'choose another with --name, or give --replace');
      }
    },
  );
}

/** Whoever has written the file could have secrets of the project sent to a host of theirs. */
function requireNoSecrets(file: string, { template: { network } }: Header): void {
  const rules = secretRules(network);
  if (!rules) throw unknown(file);
  if (rules.length === 0) return;
  const shown = rules.slice(0, 5).map((rule) => printable(rule.slice(0, 100)));
  throw new CayError(
    'failed_precondition',
    `The network policy in "${file}" puts secrets of the project on requests to ${shown.join(', ')}`,
    { hint: 'if you trust whoever made it, take it in with --trust-secrets' },
  );
}

/** Reads the first line; the rest is the archive, which the server checks. */
async function openTemplate(file: string): Promise<{ header: Header; archive: AsyncIterable<Uint8Array> }> {
  const parts = (createReadStream(file, { highWaterMark: 256 * 1024 }) as AsyncIterable<Buffer>)[
    Symbol.asyncIterator
  ]();
  let held = Buffer.alloc(0);
  for (let end = -1; end < 0; end = held.indexOf(0x0a)) {
    const next = await parts.next().catch((cause: unknown) => {
      throw pathError('read', file, cause);
    });
    if (next.done || held.length > MOST_HEADER_BYTES) throw unknown(file);
    held = Buffer.concat([held, next.value]);
  }
  const end = held.indexOf(0x0a);
  let header: Header;
  try {
    header = JSON.parse(held.toString('utf8', 0, end)) as Header;
  } catch {
    throw unknown(file);
  }
  if (header?.format !== 'cay-template' || header.version !== 1 || typeof header.template?.name !== 'string')
    throw unknown(file);
  async function* archive() {
    yield held.subarray(end + 1);
    for (let next = await parts.next(); !next.done; next = await parts.next()) yield next.value;
  }
  return { header, archive: archive() };
}

const unknown = (file: string) =>
  new CayError('invalid_argument', `"${file}" is no file that "cay template export" wrote`);
