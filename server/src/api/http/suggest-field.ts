import { z } from 'zod';
import { nearest } from '../../lib/nearest.ts';

/** Names that callers know from other tools, and the field of this API that they mean. */
const ALIASES: Record<string, readonly string[]> = {
  cmd: ['argv', 'cmd'],
  command: ['argv', 'cmd'],
  cwd: ['workdir'],
  dir: ['workdir'],
  workingDir: ['workdir'],
  envs: ['env'],
  envVars: ['env'],
  environment: ['env'],
  timeout: ['timeoutMs'],
  memory: ['limits.memoryBytes', 'memoryBytes'],
  cpu: ['limits.cpus', 'cpus'],
  cpus: ['limits.cpus'],
  disk: ['limits.diskBytes', 'diskBytes'],
  pids: ['limits.pids'],
  image: ['template'],
  metadata: ['labels'],
  tags: ['labels'],
};

/**
 * The field that a caller may have meant, for the first issue that a name explains: an unknown field, or a
 * known one with a value of another type. Undefined if there is none.
 */
export function suggestField(error: z.ZodError, schema: z.ZodType): string | undefined {
  for (const issue of error.issues) {
    const suggestion =
      issue.code === 'unrecognized_keys'
        ? suggestFor(issue.keys[0] ?? '', schema, issue.path)
        : issue.code === 'invalid_type' && issue.path.length > 0
          ? aliasOf(String(issue.path.at(-1)), schema, issue.path.slice(0, -1))
          : undefined;
    if (suggestion !== undefined) return suggestion;
  }
  return undefined;
}

function suggestFor(name: string, schema: z.ZodType, path: readonly PropertyKey[]): string | undefined {
  const found = aliasOf(name, schema, path) ?? nearest(name, fieldsOf(schemaAt(schema, path)).keys());
  return found === undefined || found.includes('.') ? found : [...path.map(String), found].join('.');
}

/** A field of the same object, or of one inside of it, that the name is known to mean. */
function aliasOf(name: string, schema: z.ZodType, path: readonly PropertyKey[]): string | undefined {
  const within = schemaAt(schema, path);
  const aliases = Object.hasOwn(ALIASES, name) ? ALIASES[name]! : [];
  return aliases.find((alias) => alias !== name && schemaAt(within, alias.split('.')) !== undefined);
}

function schemaAt(schema: z.ZodType | undefined, path: readonly PropertyKey[]): z.ZodType | undefined {
  let at = schema;
  for (const key of path) at = fieldsOf(at).get(String(key));
  return at;
}

/** Fields of an object schema, also behind defaults and refinements, and of all options of a union. */
function fieldsOf(schema: z.ZodType | undefined): Map<string, z.ZodType> {
  if (schema instanceof z.ZodObject)
    return new Map(Object.entries(schema.shape as Record<string, z.ZodType>));
  if (schema instanceof z.ZodUnion)
    return new Map(schema.options.flatMap((option) => [...fieldsOf(option as z.ZodType)]));
  if (schema instanceof z.ZodPipe) return fieldsOf(schema.in as z.ZodType);
  if (
    schema instanceof z.ZodOptional ||
    schema instanceof z.ZodNullable ||
    schema instanceof z.ZodDefault ||
    schema instanceof z.ZodPrefault
  )
    return fieldsOf(schema.unwrap() as z.ZodType);
  return new Map();
}
