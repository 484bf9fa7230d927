/** The HTTP API's reference as Markdown, from the OpenAPI document that the server answers with. */

interface Schema {
  description?: string;
  $ref?: string;
  type?: string | string[];
  const?: unknown;
  enum?: unknown[];
  anyOf?: Schema[];
  oneOf?: Schema[];
  items?: Schema;
  properties?: Record<string, Schema>;
  required?: string[];
  additionalProperties?: Schema | boolean;
  default?: unknown;
  minimum?: number;
  maximum?: number;
  minLength?: number;
  maxLength?: number;
  maxItems?: number;
  'x-cay-events'?: Schema;
}

interface Parameter {
  name: string;
  in: string;
  required?: boolean;
  description?: string;
  schema: Schema;
}

type Content = Record<string, { schema: Schema }>;

interface Operation {
  operationId: string;
  summary: string;
  description?: string;
  tags: string[];
  security: unknown[];
  'x-cay-access'?: string;
  parameters: Parameter[];
  requestBody?: { required?: boolean; content: Content };
  responses: Record<string, { description: string; content?: Content }>;
}

export interface OpenApiDocument {
  paths: Record<string, Record<string, Operation>>;
  components: { schemas: Record<string, Schema> };
  tags: { name: string }[];
}

const INTRODUCTION = `# HTTP API

Generated from the server's own OpenAPI document by \`node scripts/generate-api-reference.ts\`; a test checks that it is current. The
server answers the document itself at \`GET /openapi.json\`.

- A key is sent as \`Authorization: Bearer <key>\` or as \`X-API-Key: <key>\`. It sees its own project and nothing else.
- \`{id}\` of a sandbox is its id or its name.
- Bodies are JSON. A field that is not known is refused.
- Failures have one shape: see [errors](errors.md).
- What streams comes as \`application/x-ndjson\` (one JSON value a line; an empty line is a sign of life) or as \`text/event-stream\`, by
  the \`Accept\` header.
- A key that is used too often gets \`429\` with \`Retry-After\`.
- Previews are not part of the document: \`http://{port}-{id without "sbx_"}.{domain}/\`, or \`/preview/{id}/{port}/\` on the server's own
  host. The token of a private port goes into the header \`X-Cay-Preview-Token\`, or once into the query as \`cay_token\`.
`;

export function apiReference(given: OpenApiDocument): string {
  const document = linked(given);
  const operations = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({
      title: `${method.toUpperCase()} ${path}`,
      operation,
    })),
  );
  const sections = document.tags.map(({ name }) => {
    const own = operations.filter(({ operation }) => operation.tags[0] === name);
    return [`## Routes: ${name}`, ...own.map(({ title, operation }) => describe(title, operation))].join(
      '\n\n',
    );
  });
  const types = Object.entries(document.components.schemas)
    .toSorted(([one], [other]) => (one < other ? -1 : 1))
    .map(([name, schema]) => [`### ${name}`, shape(schema)].join('\n\n'));
  return `${[INTRODUCTION.trim(), ...sections, '## Types', ...types].join('\n\n')}\n`;
}

/** The document with a reference wherever a schema that has a name is written out in full inside another. */
function linked(document: OpenApiDocument): OpenApiDocument {
  const names = new Map(
    Object.entries(document.components.schemas).map(([name, schema]) => [JSON.stringify(schema), name]),
  );
  const link = (value: unknown): unknown => {
    if (value === null || typeof value !== 'object') return value;
    const { description, ...bare } = value as Schema;
    const name = names.get(JSON.stringify(Array.isArray(value) ? value : bare));
    if (name === undefined) return linkInside(value);
    return { $ref: `#/components/schemas/${name}`, ...(description !== undefined && { description }) };
  };
  const linkInside = (value: object): unknown =>
    Array.isArray(value)
      ? value.map(link)
      : Object.fromEntries(Object.entries(value).map(([key, each]) => [key, link(each)]));
  const schemas = Object.fromEntries(
    Object.entries(document.components.schemas).map(([name, schema]) => [name, linkInside(schema) as Schema]),
  );
  return { ...document, components: { schemas } };
}

function describe(title: string, operation: Operation): string {
  const access =
    operation['x-cay-access'] === 'admin'
      ? ' Needs an admin key.'
      : operation['x-cay-access'] === 'metrics'
        ? ' Needs an admin key, or one with the role `metrics`.'
        : operation.security.length === 0
          ? ' Needs no key.'
          : '';
  const body = operation.requestBody;
  const parts = [`### ${title}`, `${operation.summary}.${access}`];
  if (operation.description !== undefined) parts.push(operation.description);
  if (operation.parameters.length > 0) parts.push(parameterTable(operation.parameters));
  if (body) parts.push(`Body${body.required === false ? ' (optional)' : ''}: ${contents(body.content)}`);
  const answers = Object.entries(operation.responses).filter(([status]) => status !== 'default');
  parts.push(
    answers
      .map(
        ([status, answer]) =>
          `- \`${status}\` ${answer.description}${answer.content && status !== '101' ? `: ${contents(answer.content)}` : ''}`,
      )
      .join('\n'),
  );
  return parts.join('\n\n');
}

function parameterTable(parameters: readonly Parameter[]): string {
  const rows = parameters.map(({ name, in: where, required, description, schema }) => [
    `\`${name}\``,
    `${where}${required ? '' : ', optional'}`,
    typeText(schema),
    description ?? '',
  ]);
  return table(['parameter', 'in', 'type', ''], rows);
}

/** Media types that carry the same are listed together. */
function contents(content: Content): string {
  const byType = new Map<string, string[]>();
  for (const [media, { schema }] of Object.entries(content)) {
    const events = schema['x-cay-events'];
    const text = events
      ? `${events.$ref ? `${typeText(events)} ` : ''}one after the other`
      : media === 'application/json'
        ? typeText(schema)
        : 'bytes';
    byType.set(text, [...(byType.get(text) ?? []), media]);
  }
  return [...byType]
    .map(([text, media]) => `${text} (${media.map((each) => `\`${each}\``).join(', ')})`)
    .join('; ');
}

function shape(schema: Schema): string {
  const variants = schema.oneOf ?? schema.anyOf;
  if (variants?.every(({ properties }) => properties))
    return ['One of:', ...variants.map((variant) => `- ${inline(variant)}`)].join('\n');
  if (!schema.properties) return typeText(schema);
  const rows = Object.entries(schema.properties).flatMap(([field, value]) =>
    fieldRows(field, value, isRequired(schema, field)),
  );
  return table(['field', 'type', ''], rows);
}

function fieldRows(field: string, value: Schema, required: boolean, prefix = ''): string[][] {
  const preset =
    value.default !== undefined && typeof value.default !== 'object'
      ? `Default \`${JSON.stringify(value.default)}\`.`
      : '';
  const optional = required || value.default !== undefined ? '' : ', optional';
  const row = [
    `\`${prefix}${field}\``,
    `${value.properties ? 'object' : typeText(value)}${optional}`,
    [value.description, preset].filter(Boolean).join(' '),
  ];
  const below = Object.entries(value.properties ?? {}).flatMap(([name, nested]) =>
    fieldRows(name, nested, isRequired(value, name), `${prefix}${field}.`),
  );
  return [row, ...below];
}

/**
 * A field without a default may be left out unless it is listed; one in an answer with a default always is
 * there.
 */
function isRequired(schema: Schema, field: string): boolean {
  return schema.required?.includes(field) ?? false;
}

function typeText(schema: Schema): string {
  if (schema.$ref !== undefined) {
    const name = schema.$ref.split('/').at(-1)!;
    return `[${name}](#${name.toLowerCase()})`;
  }
  if (schema.const !== undefined) return `\`${JSON.stringify(schema.const)}\``;
  if (schema.enum)
    return schema.enum.length > 16
      ? `one of ${schema.enum.length} names such as \`${JSON.stringify(schema.enum[0])}\``
      : schema.enum.map((value) => `\`${JSON.stringify(value)}\``).join(', ');
  const variants = schema.anyOf ?? schema.oneOf;
  if (variants) return variants.map(typeText).join(' or ');
  if (schema.type === 'array') return `array of ${typeText(schema.items ?? {})}`;
  if (schema.properties) return inline(schema);
  if (typeof schema.additionalProperties === 'object' && Object.keys(schema.additionalProperties).length > 0)
    return `object of ${typeText(schema.additionalProperties)}`;
  return `${[schema.type ?? 'anything'].flat().join(' or ')}${range(schema)}`;
}

function inline(schema: Schema): string {
  const fields = Object.entries(schema.properties ?? {}).map(
    ([name, value]) =>
      `\`${name}\`${isRequired(schema, name) || value.default !== undefined ? '' : '?'}: ${typeText(value)}`,
  );
  return `{ ${fields.join(', ')} }`;
}

/** The bounds of a number that the schema sets; those of every safe integer say nothing. */
function range({ type, minimum, maximum }: Schema): string {
  if (type !== 'integer' && type !== 'number') return '';
  const from = minimum === undefined || minimum === Number.MIN_SAFE_INTEGER ? '' : `from ${minimum}`;
  const to = maximum === undefined || maximum === Number.MAX_SAFE_INTEGER ? '' : `to ${maximum}`;
  return from === '' && to === '' ? '' : ` ${[from, to].filter(Boolean).join(' ')}`;
}

function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]) =>
    `| ${cells.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |`;
  return [line(head), `|${head.map(() => '---|').join('')}`, ...rows.map(line)].join('\n');
}
