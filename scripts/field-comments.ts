/**
 * What the protocol's sources say about each field. The schemas carry types and bounds into the OpenAPI
 * document; their meaning stands in the comment above each field, and there only.
 */
export interface FieldComment {
  text: string;
  /** The schema that the field is made of, whose own fields have comments too. */
  owner?: string;
}

export interface FieldComments {
  /** Of a field of `<schema>Schema`, or of the schema that it was made from. */
  of(schema: string, field: string): FieldComment | undefined;
}

interface Definition {
  parent?: string;
  fields: Map<string, FieldComment>;
}

const DEFINITION = /^export const (\w+)Schema = (.*)$/;
const FIELD = /^\s+(?:\/\*\* (.*?) \*\/ )?(\w+): (.*)$/;
const COMMENT_LINE = /^\s*\/\*\* (.*?) \*\/$/;

export function fieldComments(sources: readonly string[]): FieldComments {
  const definitions = new Map<string, Definition>();
  for (const source of sources) read(source, definitions);
  const of: FieldComments['of'] = (schema, field) => {
    const definition = definitions.get(schema);
    if (!definition) return undefined;
    return (
      definition.fields.get(field) ??
      (definition.parent === undefined ? undefined : of(definition.parent, field))
    );
  };
  return { of };
}

function read(source: string, definitions: Map<string, Definition>): void {
  let current: Definition | undefined;
  let comment = '';
  for (const line of source.split('\n')) {
    const definition = DEFINITION.exec(line);
    if (definition) {
      const parent = /^(\w+)Schema\b/.exec(definition[2]!)?.[1];
      current = { fields: new Map(), ...(parent !== undefined && { parent }) };
      definitions.set(definition[1]!, current);
      comment = '';
      continue;
    }
    if (/^\S/.test(line) && !/^[})\]]/.test(line)) current = undefined;
    const alone = COMMENT_LINE.exec(line)?.[1];
    if (alone !== undefined) {
      comment = alone;
      continue;
    }
    const field = FIELD.exec(line);
    if (!field) continue;
    const owner = /\b(\w+)Schema\b/.exec(field[3]!)?.[1];
    current?.fields.set(field[2]!, { text: field[1] ?? comment, ...(owner !== undefined && { owner }) });
    comment = '';
  }
}
