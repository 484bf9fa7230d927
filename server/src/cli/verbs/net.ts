import type {
  EgressAttempt,
  NamedPolicy,
  NetworkPolicy,
  NetworkRule,
  Put,
  SandboxNetwork,
} from '@cay/sdk/client';
import { readFileSync } from 'node:fs';
import { Argument, type Command } from 'commander';
import { openClient } from '../lib/client.ts';
import { withCommonOptions } from '../lib/common-options.ts';
import { usageError } from '../lib/failure.ts';
import { colour, print, printJson, printable, table } from '../lib/output.ts';
import { POLICIES } from '../lib/sandbox-options.ts';
import { pathError } from '../lib/path-error.ts';
import type { CommonOptions } from '../lib/settings.ts';
import { formatBytes, parseDuration } from '../lib/units.ts';
import type { Verb } from '../verb.ts';

const SANDBOX = 'id, name or beginning of an id';

export const netVerb: Verb = (program) => {
  const command = program.command('net').description('what a sandbox reaches outside, and tried to reach');
  showVerb(command);
  setVerb(command);
  for (const list of ['allow', 'deny'] as const) addVerb(command, list);
  injectVerb(command);
  for (const verb of ['join', 'leave'] as const) memberVerb(command, verb);
  logVerb(command);
  approvalVerbs(command);
};

function showVerb(command: Command): void {
  const show = command.command('show').description('show the network policy').argument('<sandbox>', SANDBOX);
  withCommonOptions(show).action(async (ref: string, options: CommonOptions) =>
    report(await (await openClient(options).sandbox(ref)).network.get(), options),
  );
}

function setVerb(command: Command): void {
  const set = command
    .command('set')
    .description('set the network policy; rules are added with "cay net allow" and "cay net deny"')
    .argument('<sandbox>', SANDBOX)
    .addArgument(new Argument('<policy>', 'what it reaches').choices(POLICIES));
  withCommonOptions(set)
    .addHelpText('after', '\n  cay net set my-box public\n  cay net set my-box none')
    .action(async (ref: string, policy: NamedPolicy, options: CommonOptions) =>
      report(await (await openClient(options).sandbox(ref)).network.set(policy), options),
    );
  const none = command
    .command('none')
    .description('let a sandbox reach nothing')
    .argument('<sandbox>', SANDBOX);
  withCommonOptions(none).action(async (ref: string, options: CommonOptions) =>
    report(await (await openClient(options).sandbox(ref)).network.set('none'), options),
  );
}

function addVerb(command: Command, list: 'allow' | 'deny'): void {
  const verb = command
    .command(list)
    .description(list === 'allow' ? 'let a sandbox reach more' : 'let a sandbox reach less')
    .argument('<sandbox>', SANDBOX)
    .argument('<rule...>', 'names, addresses or presets, such as example.org:443, *.example.org or npm');
  withCommonOptions(verb)
    .addHelpText('after', `\n  cay net ${list} my-box api.example.org db.example.org:5432`)
    .action(async (ref: string, rules: string[], options: CommonOptions) => {
      const { network } = await openClient(options).sandbox(ref);
      report(await network[list](...rules), options);
    });
}

interface InjectOptions extends CommonOptions {
  secret: string;
  header?: string;
  basic?: string;
  query?: string;
  aws?: string;
  git?: boolean;
  ssh?: string;
  env?: string;
}

function injectVerb(command: Command): void {
  const inject = command
    .command('inject')
    .description('put a stored secret on requests of a sandbox, outside of it')
    .argument('<sandbox>', SANDBOX)
    .argument('<host>', 'where the requests go, such as api.example.org or api.example.org/v1')
    .requiredOption('--secret <name>', 'its name, as "cay secret ls" shows it')
    .option('--header <text>', 'set a header, such as "Authorization: Bearer {secret}"')
    .option('--basic <user>', 'as the password of this user')
    .option('--query <parameter>', 'set a parameter of the query')
    .option('--aws <access-key-id>', 'sign requests for AWS')
    .option('--git', 'as credentials of git over HTTPS')
    .option('--ssh <known-hosts>', 'as the SSH key of git, for a host of which this file has the host keys')
    .option('--env <name>', 'the variable in which commands find the placeholder');
  withCommonOptions(inject)
    .addHelpText(
      'after',
      '\nWithout a way to put it, the placeholder of the secret is replaced where a request has it.\n' +
        '\n  cay net inject my-box api.example.org --secret API_TOKEN --env API_TOKEN' +
        '\n  cay net inject my-box api.example.org --secret API_TOKEN --header "X-Api-Key: {secret}"',
    )
    .action(async (ref: string, to: string, options: InjectOptions) => {
      const put = putOf(options);
      const { network } = await openClient(options).sandbox(ref);
      report(await network.allow({ to, put }), options);
    });
}

function putOf({ secret, header, basic, query, aws, git, ssh, env }: InjectOptions): Put {
  const given = { secret, ...(env !== undefined && { env }) };
  const ways: Put[] = [];
  if (header !== undefined) {
    const [, name, value] = /^([^:]+):\s*(.*)$/.exec(header) ?? [];
    if (name === undefined || value === undefined || !value.includes('{secret}'))
      throw usageError(
        `"${header}" is no header with the secret in it`,
        'write it as in --header "Authorization: Bearer {secret}"',
      );
    ways.push({ as: 'header', header: name, value, ...given });
  }
  if (basic !== undefined) ways.push({ as: 'basic', username: basic, ...given });
  if (query !== undefined) ways.push({ as: 'query', parameter: query, ...given });
  if (aws !== undefined) ways.push({ as: 'aws', accessKeyId: aws, ...given });
  if (git) ways.push({ as: 'git', ...given });
  if (ssh !== undefined) ways.push({ as: 'ssh', knownHosts: hostKeysIn(ssh), ...given });
  if (ways.length > 1) throw usageError('A secret is put on requests in one way', 'give one of the flags');
  return ways[0] ?? { as: 'placeholder', ...given };
}

function hostKeysIn(path: string): string[] {
  try {
    return readFileSync(path, 'utf8')
      .split('\n')
      .filter((line) => line.trim() !== '' && !line.startsWith('#'));
  } catch (error) {
    throw pathError('read', path, error);
  }
}

function memberVerb(command: Command, verb: 'join' | 'leave'): void {
  const member = command
    .command(verb)
    .description(
      verb === 'join'
        ? 'put a sandbox into named networks, whose sandboxes reach each other by name'
        : 'take a sandbox out of named networks; its connections there are cut',
    )
    .argument('<sandbox>', SANDBOX)
    .argument('<network...>', 'names of networks of the project');
  withCommonOptions(member).action(async (ref: string, names: string[], options: CommonOptions) => {
    const sandbox = await openClient(options).sandbox(ref);
    const others = sandbox.info.networks.filter((name) => !names.includes(name));
    const { networks } = await sandbox.update({ networks: verb === 'join' ? [...others, ...names] : others });
    if (options.json) printJson({ networks });
    else print(networks.length > 0 ? networks.join(' ') : colour.dim('in no named network'));
  });
}

function logVerb(command: Command): void {
  const log = command
    .command('log')
    .description('show what a sandbox tried to reach, the latest last')
    .argument('<sandbox>', SANDBOX)
    .option('-f, --follow', 'go on with what it tries from now on');
  withCommonOptions(log).action(async (ref: string, options: CommonOptions & { follow?: boolean }) => {
    const { network } = await openClient(options).sandbox(ref);
    const attempts = (await network.attempts({ limit: 1000 })).toReversed();
    if (!options.follow) {
      if (options.json) printJson(attempts);
      else
        print(
          table(['TIME', 'VERDICT', 'TARGET', 'REQUEST', 'SENT', 'RECEIVED', 'RULE'], attempts.map(cells)),
        );
      return;
    }
    const show = (attempt: EgressAttempt) =>
      options.json ? printJson(attempt) : print(cells(attempt).join('  '));
    for (const attempt of attempts) show(attempt);
    for await (const attempt of network.follow()) show(attempt);
  });
}

function approvalVerbs(command: Command): void {
  const pending = command
    .command('pending')
    .description('list attempts that wait for an approval')
    .argument('<sandbox>', SANDBOX);
  withCommonOptions(pending).action(async (ref: string, options: CommonOptions) => {
    const waiting = await (await openClient(options).sandbox(ref)).network.pending();
    if (options.json) return printJson(waiting);
    print(
      table(
        ['ID', 'TARGET', 'UNTIL', 'PROCESS'],
        waiting.map(({ id, name, address, port, expiresAt, process }) => [
          id,
          printable(`${name ?? address}:${port}`),
          expiresAt,
          printable(process ?? '-'),
        ]),
      ),
    );
  });
  for (const [verb, verdict] of [
    ['approve', 'allow'],
    ['refuse', 'deny'],
  ] as const) {
    const answer = command
      .command(verb)
      .description(verdict === 'allow' ? 'allow an attempt that waits' : 'deny an attempt that waits')
      .argument('<sandbox>', SANDBOX)
      .argument('<id>', 'of "cay net pending"');
    if (verdict === 'allow') answer.option('--for <time>', 'how long (default: 1h)', parseDuration);
    withCommonOptions(answer).action(
      async (ref: string, id: string, options: CommonOptions & { for?: number }) => {
        const { network } = await openClient(options).sandbox(ref);
        await network.answer(id, verdict, options.for === undefined ? {} : { forMs: options.for });
        if (options.json) printJson({ id, verdict });
        else print(id);
      },
    );
  }
}

function cells({ at, verdict, name, address, port, method, path, ...rest }: EgressAttempt): string[] {
  const paint = { allowed: colour.green, denied: colour.red, failed: colour.yellow }[verdict];
  return [
    at,
    paint(rest.reason === null ? verdict : `${verdict} (${rest.reason})`),
    printable(`${name ?? address}:${port}`),
    printable(method === null ? rest.protocol : `${method} ${path ?? ''}`),
    formatBytes(rest.bytesOut),
    formatBytes(rest.bytesIn),
    printable(rest.rule ?? (rest.suggestion === null ? '-' : `allow: ${rest.suggestion}`)),
  ];
}

function report(network: SandboxNetwork, options: CommonOptions): void {
  if (options.json) return printJson(network);
  const { policy, template, project, installation, stats } = network;
  const rows = [
    ['sandbox', ...described(policy)],
    ...(template === null ? [] : [['template', ...described(template)]]),
    ...(project === null ? [] : [['project', ...described(project)]]),
    ['installation', ...described(installation)],
  ];
  print(table(['LAYER', 'POLICY', 'ALLOW', 'DENY'], rows));
  if (stats)
    print(
      `\n${stats.attempts} attempts, ${stats.denied} denied; ${formatBytes(stats.bytesOut)} sent, ${formatBytes(stats.bytesIn)} received`,
    );
}

function described(policy: NetworkPolicy): string[] {
  if (typeof policy === 'string') return [policy, '-', '-'];
  const { base = 'none', allow = [], deny = [], otherwise } = policy;
  return [otherwise === 'ask' ? `${base}, else ask` : base, rulesOf(allow), rulesOf(deny)];
}

const rulesOf = (rules: readonly NetworkRule[]) => printable(rules.map(ruleText).join(', ')) || '-';

/** The target, and in brackets its conditions and the secrets that are put on its requests. */
export function ruleText(rule: NetworkRule): string {
  if (typeof rule === 'string') return rule;
  const { to, methods = [], paths = [], headers = {}, put = [] } = rule;
  const secrets = [put].flat().flatMap((each) => ('secret' in each && each.secret ? [each.secret] : []));
  const said = [
    ...[methods, paths, Object.keys(headers)].map((each) => each.join(' ')),
    secrets.length > 0 ? `secret ${secrets.join(' ')}` : '',
  ].filter((each) => each !== '');
  return said.length === 0 ? to : `${to} (${said.join('; ')})`;
}
