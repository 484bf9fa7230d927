/** Translates what E2B's builder sends into a recipe. */
import { CayError, execText } from '@cay/sdk/protocol';
import { z } from 'zod';
import type { BuildStep, Recipe } from '../../../../control/templates/builds/build.ts';
import { parseTemplateRef, formatTemplateRef } from './template-name.ts';

const Text = execText(128 * 1024);
export const StartBuildBody = z.looseObject({
  fromImage: z.string().max(512).nullish(),
  fromTemplate: z.string().max(512).nullish(),
  fromImageRegistry: z.unknown().optional(),
  steps: z
    .array(
      z.looseObject({
        type: z.string().max(32),
        args: z.array(Text).max(2048).default([]),
        filesHash: z.string().max(64).nullish(),
        force: z.boolean().nullish(),
      }),
    )
    .max(500)
    .default([]),
  startCmd: Text.nullish(),
  readyCmd: Text.nullish(),
  force: z.boolean().nullish(),
});
export type StartBuildBody = z.infer<typeof StartBuildBody>;
type Step = StartBuildBody['steps'][number];

/** Names of E2B's own images, and the templates they are here. */
const IMAGES: Record<string, string> = {
  'e2bdev/base': 'base',
  'e2bdev/code-interpreter': 'code-interpreter-v1',
};
/** The ready command if the request has a start command and no ready command. */
const READY = 'sleep 20';

export function toRecipe(body: StartBuildBody): Recipe {
  if (body.fromImageRegistry !== undefined && body.fromImageRegistry !== null)
    throw new CayError('unsupported', 'Images of registries with credentials cannot be built from here', {
      hint: 'build from "base" or from a template of your own',
    });
  const start = body.startCmd || undefined;
  const ready = body.readyCmd || (start === undefined ? undefined : READY);
  return {
    from: fromOf(body),
    steps: body.steps.map(toStep),
    caching: body.force || body.steps.some((step) => step.force) ? 'refresh' : 'use',
    ...(start !== undefined && { start }),
    ...(ready !== undefined && { ready }),
  };
}

function fromOf({ fromImage, fromTemplate }: StartBuildBody): string {
  if (fromTemplate) return formatTemplateRef(parseTemplateRef(fromTemplate));
  if (fromImage) return IMAGES[fromImage.replace(/:latest$/, '')] ?? fromImage;
  throw new CayError('invalid_argument', 'A template is built from an image or from a template');
}

function toStep(step: Step, index: number): BuildStep {
  const { args } = step;
  const [first, second, third, fourth] = args;
  const wrong = (why: string) =>
    new CayError('invalid_argument', `Step ${index + 1} (${step.type.slice(0, 32)}) ${why}`);
  switch (step.type.toUpperCase()) {
    case 'RUN':
      if (!first) throw wrong('has no command');
      return { type: 'run', command: first, ...(second && { user: second }) };
    case 'COPY':
    case 'ADD':
      if (!first || !second || !step.filesHash)
        throw wrong('needs a source, a target and the hash of its files');
      if (fourth && !/^[0-7]{3,4}$/.test(fourth))
        throw wrong(`has a mode that is none: "${fourth.slice(0, 20)}"`);
      return {
        type: 'copy',
        files: step.filesHash,
        source: first,
        target: second,
        ...(third && { owner: third }),
        ...(fourth && { mode: fourth }),
      };
    case 'ENV':
      if (args.length === 0 || args.length % 2 !== 0) throw wrong('needs a value for each name');
      return {
        type: 'env',
        variables: Array.from(
          { length: args.length / 2 },
          (_, at) => [args[at * 2]!, args[at * 2 + 1]!] as const,
        ),
      };
    case 'WORKDIR':
      if (!first) throw wrong('has no path');
      return { type: 'workdir', path: first };
    case 'USER':
      if (!first) throw wrong('has no user');
      return { type: 'user', user: first };
    default:
      throw wrong('is not known here');
  }
}
