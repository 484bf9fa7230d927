/** The steps of a stage of a Dockerfile. */
import { AbsolutePathSchema, CayError, EnvSchema, UserSchema } from '@cay/sdk/protocol';
import type { Step } from '../builds/step.ts';
import { makeDirectories } from '../builds/copy-files.ts';
import { execForm, nameValues } from './arguments.ts';
import { copyStep } from './copy-step.ts';
import { dockerfileError, type Instruction } from './dockerfile.ts';
import { parseDockerfile } from './parse-dockerfile.ts';
import { said } from './plan-stages.ts';
import { runStep } from './run-step.ts';
import { expanderOf, shownOf, type StepOptions } from './step-options.ts';
import { configured, DEFAULT_SHELL, requireBounded, within, type StageState } from './stage-state.ts';

type DockerStep = Step<StageState>;

export function dockerfileSteps(instructions: readonly Instruction[], options: StepOptions): DockerStep[] {
  return instructions.map((instruction) => stepOf(instruction, options));
}

/** Instructions that a base image or template has for those who build on it. */
export function triggersOf(onBuild: readonly string[], line: number): Instruction[] {
  return onBuild.flatMap((text) => {
    const { instructions } = parseDockerfile(text);
    return instructions.map((each) => ({ ...each, line }));
  });
}

function stepOf(instruction: Instruction, options: StepOptions): DockerStep {
  const { name } = instruction;
  if (name === 'RUN') return runStep(instruction, options);
  if (name === 'COPY' || name === 'ADD') return copyStep(instruction, options);
  if (name === 'WORKDIR') return workdirStep(instruction, options);
  return configStep(instruction, options);
}

function requireNoFlags({ name, flags, line }: Instruction): void {
  if (flags.length > 0) throw dockerfileError(line, `${name} has no flag --${flags[0]!.name}`);
}

function workdirStep(instruction: Instruction, options: StepOptions): DockerStep {
  const { rest, line } = instruction;
  requireNoFlags(instruction);
  if (rest === '') throw dockerfileError(line, 'WORKDIR needs a path');
  const target = (state: StageState) => {
    const path = within(state, expanderOf(instruction, options, state)(rest));
    if (!AbsolutePathSchema.safeParse(path).success) throw dockerfileError(line, 'the path is too long');
    return path;
  };
  return {
    shown: shownOf(instruction),
    touches: true,
    key: async (state) => target(await state()),
    async run(state, { guest, signal }) {
      const workdir = target(state);
      if (workdir !== '/') await makeDirectories((await guest()).files('root'), workdir, undefined, signal);
      return configured(state, { workdir });
    },
  };
}

/** What changes no file. */
function configStep(instruction: Instruction, options: StepOptions): DockerStep {
  const decide = changeOf(instruction, options);
  const change = (state: StageState): StageState => {
    const changed = decide(state);
    said(instruction.line, () => requireBounded(changed));
    return changed;
  };
  const isEnv = instruction.name === 'ENV';
  return {
    shown: isEnv
      ? `ENV ${said(instruction.line, () => nameValues(instruction.rest, options.plan.escape))
          .map(({ name }) => name)
          .join(' ')}`
      : shownOf(instruction),
    touches: false,
    // What it says, with all variables resolved.
    key: async (state) => change(await state()),
    run: async (state) => change(state),
  };
}

function changeOf(instruction: Instruction, options: StepOptions): (state: StageState) => StageState {
  const { name, rest, line } = instruction;
  const { escape } = options.plan;
  const fail = (why: string, hint?: string) => dockerfileError(line, `${name} ${why}`, hint);
  const needs = (what: string) => {
    if (rest === '') throw fail(`needs ${what}`);
  };
  const pairs = () => said(line, () => nameValues(rest, escape));
  if (name !== 'HEALTHCHECK') requireNoFlags(instruction);
  switch (name) {
    case 'ENV': {
      const given = pairs();
      return (state) => {
        const expand = expanderOf(instruction, options, state);
        const env = { ...state.config.env };
        for (const each of given) env[expand(each.name)] = expand(each.value ?? '');
        const valid = EnvSchema.safeParse(env);
        if (!valid.success) throw fail(`is not valid: ${valid.error.issues[0]?.message}`);
        return configured(state, { env });
      };
    }
    case 'LABEL': {
      const given = pairs();
      return (state) => {
        const expand = expanderOf(instruction, options, state);
        const labels = { ...state.config.labels };
        for (const each of given) labels[expand(each.name)] = expand(each.value ?? '');
        return configured(state, { labels });
      };
    }
    case 'ARG': {
      const given = said(line, () => nameValues(rest, escape, { alone: true }));
      return (state) => {
        const args = { ...state.args };
        for (const each of given) {
          const expand = expanderOf(instruction, options, { ...state, args });
          const arg = expand(each.name);
          if (!/^[A-Za-z_][A-Za-z0-9_]*$/.test(arg)) throw fail(`"${arg.slice(0, 60)}" is no name`);
          const value =
            options.args[arg] ?? (each.value === undefined ? options.plan.globals[arg] : expand(each.value));
          if (value !== undefined) args[arg] = value;
        }
        return { ...state, args };
      };
    }
    case 'USER':
      needs('a user');
      return (state) => {
        const user = expanderOf(instruction, options, state)(rest);
        if (!UserSchema.safeParse(user).success) throw fail(`"${user.slice(0, 60)}" cannot be a user`);
        return configured(state, { user });
      };
    case 'CMD':
      return (state) => ({ ...configured(state, { cmd: commandOf(rest, state) }), hasOwnCmd: true });
    case 'ENTRYPOINT':
      return (state) =>
        configured(state, { entrypoint: commandOf(rest, state), ...(!state.hasOwnCmd && { cmd: [] }) });
    case 'SHELL': {
      const shell = execForm(rest);
      if (!shell || shell.length === 0) throw fail('is written as a list: SHELL ["/bin/bash", "-c"]');
      return (state) => configured(state, { shell });
    }
    case 'EXPOSE':
      needs('a port');
      return (state) => {
        const words = expanderOf(
          instruction,
          options,
          state,
        )(rest)
          .split(/\s+/)
          .filter((word) => word !== '');
        const exposed = new Set(state.config.exposed);
        for (const word of words) {
          for (const port of portsOf(word, fail)) exposed.add(port);
          if (exposed.size > MOST_EXPOSED) throw fail(`exposes more than ${MOST_EXPOSED} ports`);
        }
        return configured(state, { exposed: [...exposed] });
      };
    case 'VOLUME': {
      needs('a path');
      const given = execForm(rest) ?? rest.split(/\s+/);
      return (state) => {
        const expand = expanderOf(instruction, options, state);
        const volumes = given.map((each) => expand(each));
        if (volumes.some((volume) => volume.trim() === '')) throw fail('has an empty path');
        return configured(state, { volumes: [...new Set([...state.config.volumes, ...volumes])] });
      };
    }
    case 'STOPSIGNAL':
      needs('a signal');
      return (state) => configured(state, { stopSignal: expanderOf(instruction, options, state)(rest) });
    case 'HEALTHCHECK':
      return healthcheckOf(instruction, options);
    case 'ONBUILD': {
      needs('an instruction');
      const [inner] = rest.split(/\s+/, 1);
      if (/^(?:ONBUILD|FROM|MAINTAINER)$/i.test(inner!)) throw fail(`cannot have ${inner!.toUpperCase()}`);
      const whole = [rest, ...instruction.heredocs.flatMap(({ content, name: end }) => [content + end])].join(
        '\n',
      );
      triggersOf([whole], line);
      return (state) => configured(state, { onBuild: [...state.config.onBuild, whole] });
    }
    case 'MAINTAINER':
      options.note(`Dockerfile line ${line}: MAINTAINER is left out; LABEL can say the same`);
      return (state) => state;
    default:
      throw fail('cannot stand here');
  }
}

function commandOf(rest: string, { config }: StageState): string[] {
  if (rest === '') return [];
  return execForm(rest) ?? [...(config.shell.length > 0 ? config.shell : DEFAULT_SHELL), rest];
}

/** In one range, and of a stage. */
const MOST_PORTS = 1000;
const MOST_EXPOSED = 2000;

/** `80`, `80/udp`, `8000-8010/tcp`. */
function portsOf(word: string, fail: (why: string) => CayError): string[] {
  const [, first, last, protocol = 'tcp'] =
    /^([0-9]{1,5})(?:-([0-9]{1,5}))?(?:\/(tcp|udp|sctp))?$/i.exec(word) ?? [];
  const [from, to] = [Number(first), Number(last ?? first)];
  if (first === undefined || from < 1 || to > 65_535 || to < from || to - from > MOST_PORTS)
    throw fail(`"${word.slice(0, 60)}" is no port`);
  return Array.from({ length: to - from + 1 }, (_, at) => `${from + at}/${protocol.toLowerCase()}`);
}

function healthcheckOf(
  { flags, rest, line }: Instruction,
  { note }: StepOptions,
): (state: StageState) => StageState {
  const options: Record<string, string> = {};
  for (const { name, value } of flags) {
    if (
      !['interval', 'timeout', 'start-period', 'start-interval', 'retries'].includes(name) ||
      value === undefined
    )
      throw dockerfileError(line, `HEALTHCHECK has no flag --${name}`);
    options[name] = value;
  }
  const [, kind = '', command = ''] = /^(\S+)(?:\s+([^]*))?$/.exec(rest) ?? [];
  if (kind.toUpperCase() === 'NONE')
    return (state) => configured(state, { healthcheck: { test: ['NONE'], options: {} } });
  if (kind.toUpperCase() !== 'CMD' || command === '')
    throw dockerfileError(line, 'HEALTHCHECK is written as "HEALTHCHECK CMD command" or "HEALTHCHECK NONE"');
  note(
    `Dockerfile line ${line}: HEALTHCHECK is kept with the template and run by nothing here; --ready says when a start command is ready`,
  );
  const exec = execForm(command);
  const test = exec ? ['CMD', ...exec] : ['CMD-SHELL', command];
  return (state) => configured(state, { healthcheck: { test, options } });
}
