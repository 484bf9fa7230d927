/** The stages of a Dockerfile, and which of them a target needs. */
import { dockerfileError, type Dockerfile, type Instruction } from './dockerfile.ts';
import { expandWord, matchingBudget } from './expand-word.ts';
import { nameValues } from './arguments.ts';

export interface Stage {
  index: number;
  name?: string;
  /** An earlier stage, or what the text of FROM means after expansion. */
  from: { stage: number } | { text: string };
  instructions: Instruction[];
  line: number;
}

export interface StagePlan {
  escape: string;
  stages: Stage[];
  /** In the order to build them; the last is the target. */
  order: Stage[];
  /** ARG before the first FROM, for stages that declare them again. */
  globals: Record<string, string>;
  /** What is not done as it is written, in words for the log. */
  notes: string[];
}

export interface PlanOptions {
  /** `--build-arg`. */
  args: Readonly<Record<string, string>>;
  target?: string;
  architecture: string;
}

/** Build args that need no ARG. They are no part of what a cached step is known by. */
export const PROXY_ARGS = ['HTTP_PROXY', 'HTTPS_PROXY', 'FTP_PROXY', 'NO_PROXY', 'ALL_PROXY'].flatMap(
  (name) => [name, name.toLowerCase()],
);
const STAGE_NAME = /^[a-z][a-z0-9_.-]{0,127}$/;
const MOST_STAGES = 200;

export function planStages(
  { escape, syntax, instructions }: Dockerfile,
  { args, target, architecture }: PlanOptions,
): StagePlan {
  const notes =
    syntax === undefined
      ? []
      : [`"# syntax=${syntax.slice(0, 100)}" is not used: this server reads the Dockerfile`];
  const platform = platformArgs(architecture);
  const globals: Record<string, string> = {};
  const stages: Stage[] = [];
  const declared = new Set<string>(PROXY_ARGS);
  const lookup = (name: string) =>
    [globals, platform].find((variables) => Object.hasOwn(variables, name))?.[name];
  const matching = matchingBudget();
  for (const instruction of instructions) {
    const { name, line } = instruction;
    const last = stages.at(-1);
    if (name === 'ARG')
      for (const { name: arg } of said(line, () => nameValues(instruction.rest, escape, { alone: true })))
        declared.add(arg);
    if (name === 'FROM') {
      if (stages.length >= MOST_STAGES)
        throw dockerfileError(line, `there are more than ${MOST_STAGES} stages`);
      stages.push(
        stageOf(
          instruction,
          stages,
          (text) => said(line, () => expandWord(text, { value: lookup, escape, matching })),
          {
            platform,
            args,
          },
        ),
      );
    } else if (last) last.instructions.push(instruction);
    else if (name === 'ARG') {
      for (const { name: arg, value } of nameValues(instruction.rest, escape, { alone: true })) {
        const given =
          args[arg] ??
          (value === undefined
            ? undefined
            : said(line, () => expandWord(value, { value: lookup, escape, matching })));
        if (given !== undefined) globals[arg] = given;
      }
    } else
      throw dockerfileError(line, `${name} stands before FROM`, 'only ARG may stand before the first FROM');
  }
  if (stages.length === 0) throw dockerfileError(1, 'there is no FROM');
  const unused = Object.keys(args).filter((name) => !declared.has(name) && !(name in platform));
  if (unused.length > 0)
    notes.push(
      `no ARG takes the build ${unused.length === 1 ? 'argument' : 'arguments'} ${unused.join(', ').slice(0, 300)}`,
    );
  const order = needed(stages, targetOf(stages, target));
  return { escape, stages, order, globals: { ...platform, ...globals }, notes };
}

/** The same failure, with its line. */
export function said<T>(line: number, work: () => T): T {
  try {
    return work();
  } catch (error) {
    if (error instanceof Error && error.constructor === Error) throw dockerfileError(line, error.message);
    throw error;
  }
}

export function platformArgs(architecture: string): Record<string, string> {
  const both = (name: string) => ({
    [`${name}PLATFORM`]: `linux/${architecture}`,
    [`${name}OS`]: 'linux',
    [`${name}ARCH`]: architecture,
    [`${name}VARIANT`]: '',
  });
  return { ...both('TARGET'), ...both('BUILD') };
}

function stageOf(
  { flags, rest, line }: Instruction,
  before: readonly Stage[],
  expand: (text: string) => string,
  { platform }: { platform: Readonly<Record<string, string>>; args: Readonly<Record<string, string>> },
): Stage {
  for (const { name, value } of flags) {
    if (name !== 'platform') throw dockerfileError(line, `FROM has no flag --${name}`);
    const wanted = expand(value ?? '');
    if (wanted !== '' && wanted !== platform['TARGETPLATFORM'])
      throw dockerfileError(
        line,
        `platform "${wanted.slice(0, 60)}" cannot be built here`,
        `this machine is ${platform['TARGETPLATFORM']}`,
      );
  }
  const [written, as, name, ...more] = rest.split(/\s+/);
  if (!written || more.length > 0 || (as !== undefined && (as.toUpperCase() !== 'AS' || name === undefined)))
    throw dockerfileError(line, 'FROM is written as "FROM image" or "FROM image AS name"');
  const stageName = name?.toLowerCase();
  if (stageName !== undefined && (!STAGE_NAME.test(stageName) || stageName === 'scratch'))
    throw dockerfileError(line, `"${name!.slice(0, 60)}" cannot name a stage`);
  const text = expand(written);
  if (text === '')
    throw dockerfileError(
      line,
      `FROM names nothing: "${written.slice(0, 60)}" is empty`,
      'give the ARG before FROM a default, or pass --build-arg',
    );
  const earlier = before.findLast((stage) => stage.name === text.toLowerCase());
  return {
    index: before.length,
    ...(stageName !== undefined && { name: stageName }),
    from: earlier ? { stage: earlier.index } : { text },
    instructions: [],
    line,
  };
}

/** The stage that a `--from` means: a name or a number of an earlier one. */
export function stageCalled(stages: readonly Stage[], text: string, before: number): Stage | undefined {
  const earlier = stages.slice(0, before);
  return (
    earlier.findLast(({ name }) => name === text.toLowerCase()) ??
    (/^[0-9]{1,4}$/.test(text) ? earlier[Number(text)] : undefined)
  );
}

function targetOf(stages: readonly Stage[], target: string | undefined): Stage {
  if (target === undefined) return stages.at(-1)!;
  const found = stageCalled(stages, target, stages.length);
  if (found) return found;
  const names = stages.flatMap(({ name }) => (name === undefined ? [] : [name]));
  throw dockerfileError(
    stages[0]!.line,
    `there is no stage "${target.slice(0, 60)}" for the target`,
    names.length > 0 ? `there are ${names.join(', ').slice(0, 300)}` : 'name stages with FROM image AS name',
  );
}

function needed(stages: readonly Stage[], target: Stage): Stage[] {
  const wanted = new Set<number>();
  const visit = (stage: Stage) => {
    if (wanted.has(stage.index)) return;
    wanted.add(stage.index);
    if ('stage' in stage.from) visit(stages[stage.from.stage]!);
    for (const text of stage.instructions.flatMap(sourcesOf)) {
      const source = stageCalled(stages, text, stage.index);
      if (source) visit(source);
    }
  };
  visit(target);
  return stages.filter(({ index }) => wanted.has(index));
}

/** The stages or images that an instruction takes files from. */
function sourcesOf({ name, flags }: Instruction): string[] {
  if (name === 'COPY')
    return flags.flatMap((flag) => (flag.name === 'from' && flag.value ? [flag.value] : []));
  if (name !== 'RUN') return [];
  return flags.flatMap((flag) =>
    flag.name === 'mount'
      ? (flag.value ?? '')
          .split(',')
          .flatMap((part) => (part.startsWith('from=') ? [part.slice('from='.length)] : []))
      : [],
  );
}
