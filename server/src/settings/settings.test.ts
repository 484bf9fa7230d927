import { availableParallelism } from 'node:os';
import { Command } from 'commander';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { withSettings } from '../cli/lib/settings-options.ts';
import type { Policy } from '../policy/policy.ts';
import { SETTINGS, type SettingName } from '../settings.ts';
import { policyOf } from './policy-of.ts';
import { resolveSettings, settingsIn, type Environment, type Resolved } from './resolve-settings.ts';
import { secretVariables, startedWith } from './started-with.ts';
import { unknownVariables } from './unknown-variables.ts';

/** As `cay up` reads them. */
function up(flags: readonly string[], env: Environment = {}): Resolved {
  const command = withSettings(new Command('up').option('--data <dir>')).exitOverride();
  return resolveSettings(command.parse(flags, { from: 'user' }).opts(), env);
}

const policy = (...flags: string[]): Policy => policyOf(up(flags));

/** A valid text for each setting that is not free text. */
const VALUES: Partial<Record<SettingName, string>> = {
  listen: '0.0.0.0:80',
  logLevel: 'debug',
  backend: 'memory,docker',
  platformRules: 'gpu=true:docker',
  probe: 'off',
  kubernetesTemplates: 'python=python:3',
  kubernetesTenancy: 'unmanaged',
  kubernetesPullPolicy: 'Never',
  kubernetesQuotaCpu: '500m',
  kubernetesQuotaMemory: '64Gi',
  kubernetesQuotaDisk: '1Ti',
  kubernetesMaxCpu: '2',
  kubernetesMaxMemory: '1Gi',
  kubernetesMaxDisk: '20Gi',
  kubernetesDisk: '2Gi',
  kubernetesReach: 'direct',
  kubernetesDirectPort: '9000',
  kubernetesLeaseSeconds: '90',
  kubernetesServerLabels: 'app=x',
  kubernetesStorage: '5Gi',
  kubernetesQuotaStorage: '1Ti',
  kubernetesVolumeSize: '2Gi',
  kubernetesVolumeAccess: 'ReadWriteMany',
  allowHostPath: '/srv/data:rw',
  store: 's3://my-bucket/cay?region=eu-west-1',
  allowBucketEndpoint: 'minio.internal:9000',
  registryMirror: 'docker.io=mirror.example.com',
  defaultLimit: 'pids=64',
  maxLimit: 'pids=128,memory=8g',
  defaultQuota: 'sandboxes=4',
  maxQuota: 'memory=8g',
  reclaim: 'off',
  http2: 'off',
  database: 'postgres://cay:secret@db.example:5432/cay',
  network: 'none',
  publishAddress: '0.0.0.0',
  publishPorts: '8000-8999',
  maxNetwork: '{"base":"public","deny":["example.org"]}',
  egressProxy: 'http://user:password@127.0.0.1:3128',
};
const textFor = (name: SettingName) => VALUES[name] ?? '7';

describe('the settings', () => {
  it.each(SETTINGS.map((setting) => [setting.name, setting] as const))(
    '%s is the same by flag and by variable',
    (name, { long, env, value }) => {
      const text = value === undefined ? '1' : textFor(name);
      const byFlag = long !== undefined && up(value === undefined ? [long] : [long, text]).settings[name];
      const byVariable = env !== undefined && up([], { [env]: text }).settings[name];
      if (long !== undefined && env !== undefined) expect(byFlag).toEqual(byVariable);
      expect(byFlag || byVariable || text === VALUES.probe).toBeTruthy();
    },
  );

  it('have a flag or a variable each, none twice, and secrets always a variable', () => {
    const flags = SETTINGS.flatMap(({ long }) => long ?? []);
    const variables = SETTINGS.flatMap(({ env }) => env ?? []);
    expect(new Set(flags).size).toBe(flags.length);
    expect(new Set(variables).size).toBe(variables.length);
    for (const { name, long, env, secret } of SETTINGS) {
      expect([long, env], name).not.toEqual([undefined, undefined]);
      if (secret) expect(env, name).toBeDefined();
      // Whatever has a flag can be set for a service too.
      if (long !== undefined && name !== 'restore') expect(env, name).toBeDefined();
    }
  });

  it('take a flag before a variable, and an empty variable for none', () => {
    const env = { CAY_POOL: '5', CAY_INSECURE: '1', CAY_RUNTIME: '', CAY_BACKEND: '', CAY_ALLOW_IMAGE: '' };
    expect(settingsIn(env)).toMatchObject({ pool: 5, insecure: true, backend: ['local'] });
    expect(settingsIn(env)).not.toHaveProperty('runtime');
    expect(up(['--pool', '3', '--no-insecure'], env).settings).toMatchObject({ pool: 3, insecure: false });
    expect(up(['--pool', '3'], { CAY_POOL: 'broken' }).settings.pool).toBe(3);
    expect(settingsIn({ CAY_WEBHOOK_PRIVATE: '0' }).webhookPrivate).toBe(false);
    const engines = { DOCKER_HOST: 'unix:///theirs', CAY_DOCKER_HOST: 'unix:///ours' };
    expect(settingsIn(engines).dockerHost).toBe('unix:///ours');
    expect(settingsIn({ ...engines, CAY_DOCKER_HOST: '' }).dockerHost).toBe('unix:///theirs');
  });

  it('have the defaults that the help says', () => {
    expect(settingsIn({})).toMatchObject({
      listen: { host: '127.0.0.1', port: 7070 },
      backend: ['local'],
      pool: 2,
      probe: { delayMs: 10_000 },
      keepEvents: 1_000_000,
      reclaim: 'on',
      logLevel: 'info',
      kubernetesQuotaPods: 100,
    });
    const help = withSettings(new Command('up')).helpInformation();
    expect(help).toContain('Connections and calls:');
    expect(help.replaceAll(/\s+/g, ' ')).toContain('sandboxes kept ready (default: 2, env: CAY_POOL)');
    expect(help).not.toContain('--no-');
  });

  it.each([
    [['--pool', 'x'], {}, '--pool cannot be "x": this must be a whole number'],
    [[], { CAY_POOL: 'x' }, 'CAY_POOL cannot be "x": this must be a whole number'],
    [['--backend', 'moon'], {}, '--backend cannot be "moon": unknown backend "moon"'],
    [['--backend', 'local,local'], {}, 'each may be named once'],
    [['--backend', ','], {}, '--backend cannot be ","'],
    [[], { CAY_LOG_LEVEL: 'loud' }, 'CAY_LOG_LEVEL cannot be "loud": must be one of debug, info'],
    [[], { CAY_OPEN_METRICS: 'maybe' }, 'CAY_OPEN_METRICS cannot be "maybe": must be 1 or 0'],
    [['--listen', '7070'], {}, '--listen cannot be "7070": this must be HOST:PORT'],
    [[], { CAY_PROBE: 'soon' }, 'CAY_PROBE cannot be "soon"'],
    [['--platform-rules', 'x'], {}, '--platform-rules cannot be "x"'],
    [['--max-quota', 'moons=3'], {}, '"moons=3" is not NAME=VALUE'],
    [['--memory-overcommit', '0'], {}, '--memory-overcommit cannot be "0"'],
    [['--memory-reserve', 'much'], {}, '--memory-reserve cannot be "much": a size is a number'],
  ])('refuse %j %j by the name that was written', (flags, env, message) => {
    expect(() => up(flags, env)).toThrow(message);
  });

  it('never show a secret that cannot be', () => {
    const secret = 'x'.repeat(70_000);
    expect(() => settingsIn({ CAY_DATABASE: secret })).toThrow(
      'CAY_DATABASE cannot be what it is: must have',
    );
  });
});

describe('what a server in the background is started with', () => {
  const again = (flags: string[], env: Environment = {}) => {
    const with_ = startedWith(up(flags, env), env);
    return up(with_.args, with_.env);
  };

  it('gives it the settings that this process has, whatever they are', () => {
    const chosen = fc.subarray(
      SETTINGS.filter(({ secret, path }) => !secret && !path).map(({ name }) => name),
    );
    fc.assert(
      fc.property(chosen, chosen, (byFlag, byVariable) => {
        const settings = (names: SettingName[]) => SETTINGS.filter(({ name }) => names.includes(name));
        const flags = settings(byFlag).flatMap(({ name, long, value }) =>
          long === undefined ? [] : value === undefined ? [long] : [long, textFor(name)],
        );
        const env = Object.fromEntries(
          settings(byVariable).flatMap(({ name, env: variable, value }) =>
            variable === undefined ? [] : [[variable, value === undefined ? '0' : textFor(name)]],
          ),
        );
        expect(again(flags, env).settings).toEqual(up(flags, env).settings);
      }),
      { numRuns: 60 },
    );
  });

  it('gives it secrets in the environment alone, also those that were flags', () => {
    const { args, env } = startedWith(up(['--database', 'postgres://u:hunter2@h/d', '--pool', '1']), {
      HOME: '/root',
    });
    expect(args).toEqual(['--pool=1']);
    expect(env).toEqual({ HOME: '/root', CAY_DATABASE: 'postgres://u:hunter2@h/d' });
    expect(secretVariables()).toEqual(
      expect.arrayContaining(['CAY_DATABASE', 'CAY_SECRET_KEY', 'CAY_SECRET_KEY_COMMAND']),
    );
  });

  it('makes paths absolute, keeps what is repeated, and turns off what was turned off', () => {
    const { args } = startedWith(
      up(['--tls-cert', 'a.pem', '--cors-origin', 'http://a', '--cors-origin', 'http://b', '--no-insecure'], {
        CAY_DATA: 'here',
      }),
      {},
    );
    expect(args).toEqual([
      `--data=${process.cwd()}/here`,
      `--tls-cert=${process.cwd()}/a.pem`,
      '--no-insecure',
      '--cors-origin=http://a',
      '--cors-origin=http://b',
    ]);
  });
});

describe('unknownVariables()', () => {
  it('finds what was probably meant', () => {
    expect(unknownVariables({ CAY_BAKEND: 'local', CAY_POOL: '1', PATH: '/', CAY_URL: 'x' })).toEqual([
      'CAY_BAKEND is not a setting and is ignored; did you mean CAY_BACKEND?',
    ]);
    expect(unknownVariables({ CAY_SOMETHING_ELSE_ENTIRELY: '1' })).toEqual([
      'CAY_SOMETHING_ELSE_ENTIRELY is not a setting and is ignored',
    ]);
  });

  it('leaves alone what Kubernetes tells pods about a Service', () => {
    const env = {
      CAY_SERVICE_HOST: '10.0.0.1',
      CAY_SERVICE_PORT: '7070',
      CAY_SERVICE_PORT_HTTP: '7070',
      CAY_PORT: 'tcp://10.0.0.1:7070',
      CAY_PORT_7070_TCP: 'tcp://10.0.0.1:7070',
      CAY_PORT_7070_TCP_ADDR: '10.0.0.1',
      CAY_PORT_7070_TCP_PROTO: 'tcp',
    };
    expect(unknownVariables(env)).toEqual([]);
    expect(unknownVariables({ CAY_PORT: '8080' })).toHaveLength(1);
  });
});

describe('what may be asked for', () => {
  it('takes lists with commas and repeated, and limits as people write them', () => {
    const made = policy(
      '--allow-runtime',
      'runsc, runc',
      '--allow-runtime',
      'crun',
      '--allow-image',
      'python:*',
      '--max-limit',
      'memory=8g,timeout=1h,commands=16,disk=none',
    );
    expect(made.runtimes).toEqual(['runsc', 'runc', 'crun']);
    expect(made.images).toEqual(['python:*']);
    expect(made.maxima).toMatchObject({
      memoryBytes: 8 * 1024 ** 3,
      timeoutMs: 3_600_000,
      commands: 16,
      diskBytes: null,
      pids: 8192,
    });
    expect(policy('--default-limit', 'cpus=0.5,open-files=1024').defaults).toMatchObject({
      cpus: 0.5,
      openFiles: 1024,
    });
    expect(policyOf(up([], { CAY_ALLOW_RUNTIME: 'gvisor', CAY_MAX_LIMIT: 'pids=64' }))).toMatchObject({
      runtimes: ['gvisor'],
      maxima: { pids: 64 },
      defaults: { pids: 64 },
    });
    expect(policyOf(up([], { CAY_ALLOW_IMAGE: '' }))).not.toHaveProperty('images');
  });

  it('has no more processors than this machine, unless sandboxes are elsewhere or the operator says so', () => {
    const cores = availableParallelism();
    expect(policy().maxima.cpus).toBe(cores);
    expect(policy('--backend', 'local,docker').maxima.cpus).toBe(cores);
    expect(policy('--backend', 'docker', '--docker-host', 'tcp://far:2375').maxima.cpus).toBeNull();
    expect(policy('--backend', 'kubernetes-job').maxima.cpus).toBeNull();
    expect(policy('--backend', 'memory').maxima.cpus).toBeNull();
    expect(policy('--max-limit', 'cpus=1000').maxima.cpus).toBe(1000);
    expect(policy('--max-limit', 'cpus=none').maxima.cpus).toBeNull();
    expect(policy('--max-limit', 'pids=64').maxima.cpus).toBe(cores);
  });

  it.each([
    [['--max-limit', 'pids'], 'pids'],
    [['--max-limit', 'processes=3'], 'processes=3'],
    [['--max-limit', 'pids=many'], 'pids=many'],
    [['--max-limit', 'pids=1'], 'pids=1'],
    [['--max-limit', 'memory=1'], 'memory=1'],
    [['--max-limit', 'commands=0'], 'commands=0'],
    [['--max-limit', 'commands=none'], 'commands=none'],
    [['--max-limit', 'open-files=none'], 'open-files=none'],
    [['--default-limit', 'commands=3'], 'commands'],
    [['--default-limit', 'pids=100', '--max-limit', 'pids=50'], 'pids'],
    [['--allow-image', 'py thon'], 'py thon'],
    [['--allow-runtime', '../runc'], '../runc'],
    [['--allow-runtime', 'process'], 'process'],
    [['--allow-process'], 'process'],
    [['--allow-runtime', 'runc,process', '--allow-process', '--runtime', 'process'], 'process'],
    [['--allow-runtime', 'runsc', '--runtime', 'runc'], '--runtime is "runc", which --allow-runtime'],
  ])('refuses %j at once', (flags, named) => {
    expect(() => policy(...flags)).toThrow(named);
  });
});
