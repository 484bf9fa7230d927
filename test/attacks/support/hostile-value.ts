/** Values for a JSON schema: what it asks for, or what an attacker would put there. */
import type { Random } from '../../faults/model/random.ts';

// The schemas of an OpenAPI document have every shape.
// oxlint-disable-next-line typescript/no-explicit-any
type Schema = any;

export interface ValueOptions {
  random: Random;
  /** Where `$ref`s lead. */
  components: Record<string, Schema>;
  /** Text that means something to the server: ids, names, cursors. */
  words: readonly string[];
  /** The share of values that are not what the schema asks for. */
  hostile: number;
}

const NUMBERS = [0, -1, 1, 0.5, -0, 1e9, 2 ** 31, 2 ** 32, 2 ** 53, -(2 ** 53), 1e21, 1e308, -1e308];
const TEXTS = [
  '',
  ' ',
  '..',
  '../../../../etc/passwd',
  '/proc/self/environ',
  '/../..',
  'a\0b',
  '\r\nX-Injected: 1',
  '%00',
  '%2e%2e%2f',
  '\u{202e}abc',
  '\ud800',
  '\uffff',
  '__proto__',
  'constructor',
  "' OR 1=1 --",
  '"; DROP TABLE sandboxes; --',
  '$(id)',
  '{{7*7}}',
  '-1',
  'NaN',
  '1e999',
  'http://127.0.0.1:1/',
  'http://169.254.169.254/latest',
  'file:///etc/passwd',
  'true',
  'null',
  '[]',
];

export function valueFor(schema: Schema, options: ValueOptions, depth = 0): unknown {
  const { random, components } = options;
  if (random.chance(options.hostile)) return hostileValue(options, depth);
  if (schema === undefined || schema === true || depth > 6) return hostileValue(options, depth);
  if (schema.$ref !== undefined)
    return valueFor(components[String(schema.$ref).split('/').at(-1)!], options, depth + 1);
  const either = schema.anyOf ?? schema.oneOf ?? schema.allOf;
  if (either !== undefined) return valueFor(random.pick(either), options, depth + 1);
  if (schema.const !== undefined) return schema.const;
  if (schema.enum !== undefined) return random.pick(schema.enum);
  switch (Array.isArray(schema.type) ? random.pick(schema.type as string[]) : schema.type) {
    case 'object':
      return objectFor(schema, options, depth);
    case 'array': {
      const length = random.chance(0.05) ? 2000 : random.below(4);
      return Array.from({ length }, () => valueFor(schema.items, options, depth + 1));
    }
    case 'integer':
    case 'number':
      return numberFor(schema, random);
    case 'boolean':
      return random.chance(0.5);
    case 'null':
      return null;
    default:
      return textFor(schema, options);
  }
}

function objectFor(schema: Schema, options: ValueOptions, depth: number): Record<string, unknown> {
  const { random } = options;
  const required = new Set<string>(schema.required ?? []);
  const made: [string, unknown][] = [];
  for (const [name, property] of Object.entries(schema.properties ?? {})) {
    if (required.has(name) ? random.chance(0.95) : random.chance(0.3))
      made.push([name, valueFor(property, options, depth + 1)]);
  }
  if (schema.additionalProperties !== undefined && schema.additionalProperties !== false) {
    for (let count = random.below(4); count > 0; count--) {
      made.push([textFor({}, options), valueFor(schema.additionalProperties, options, depth + 1)]);
    }
  }
  if (random.chance(0.1)) made.push([random.pick(TEXTS), hostileValue(options, depth)]);
  return Object.fromEntries(made);
}

function numberFor({ minimum = 0, maximum = 1000 }: Schema, random: Random): number {
  if (random.chance(0.2)) return random.pick([minimum, maximum, minimum - 1, maximum + 1]);
  return minimum + random.below(Math.min(maximum - minimum, 10_000) + 1);
}

function textFor({ minLength = 0, maxLength = 40 }: Schema, { random, words }: ValueOptions): string {
  if (random.chance(0.6)) return random.pick(words);
  if (random.chance(0.3)) return random.pick(TEXTS);
  const length = random.pick([minLength, maxLength, maxLength + 1, random.below(40)]);
  return random.pick(['a', 'é', '/', '\\', '0', '%', '\u{1f9e8}']).repeat(Math.min(length, 70_000));
}

export function hostileValue(options: ValueOptions, depth: number): unknown {
  const { random } = options;
  switch (random.below(8)) {
    case 0:
      return random.pick(NUMBERS);
    case 1:
      return random.pick([null, true, false, [], {}]);
    case 2:
      return 'x'.repeat(random.pick([100, 5000, 100_000]));
    case 3:
      return depth > 4 ? [] : Array.from({ length: random.below(5) }, () => hostileValue(options, depth + 1));
    case 4:
      return depth > 4 ? {} : { [random.pick(TEXTS)]: hostileValue(options, depth + 1) };
    case 5:
      return random.pick(options.words);
    default:
      return random.pick(TEXTS);
  }
}
