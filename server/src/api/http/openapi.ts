/** The OpenAPI 3.1 document of the routes. Its schemas are JSON Schema as zod writes it. */
import * as protocol from '@cay/sdk/protocol';
import { z } from 'zod';
import type { Answer, Route } from './route.ts';

type Json = Record<string, unknown>;

const ErrorSchema = z.object({
  error: z.object({
    code: z.enum(protocol.ERROR_CODES as [protocol.ErrorCode, ...protocol.ErrorCode[]]),
    message: z.string(),
    details: z.record(z.string(), z.unknown()).optional(),
    hint: z.string().optional(),
  }),
});

/** Schemas that have a name in the document. */
const NAMED = new Map<z.ZodType, string>(
  Object.entries(protocol as Record<string, unknown>).flatMap(([name, value]) =>
    value instanceof z.ZodType ? [[value, name.replace(/Schema$/, '')] as const] : [],
  ),
);
NAMED.set(ErrorSchema, 'Error');

export function openApiDocument(routes: readonly Route[], info: { version: string }): Json {
  const components: Json = {};
  const schemaOf = (schema: z.ZodType, io: 'input' | 'output'): Json => {
    const name = NAMED.get(schema);
    if (!name) return jsonSchema(schema, io);
    components[name] ??= jsonSchema(schema, io);
    return { $ref: `#/components/schemas/${name}` };
  };
  const paths: Record<string, Json> = {};
  for (const route of routes) (paths[route.path] ??= {})[route.method] = operation(route, schemaOf);
  return {
    openapi: '3.1.0',
    info: {
      title: 'Cay',
      version: info.version,
      description: 'Self-hosted sandboxes for AI agents',
      license: { name: 'Apache-2.0' },
    },
    paths,
    components: {
      schemas: components,
      securitySchemes: {
        bearer: { type: 'http', scheme: 'bearer' },
        apiKey: { type: 'apiKey', in: 'header', name: 'X-API-Key' },
      },
    },
    tags: [...new Set(routes.map(({ tag }) => tag))].map((name) => ({ name })),
  };
}

type SchemaOf = (schema: z.ZodType, io: 'input' | 'output') => Json;

function operation(route: Route, schemaOf: SchemaOf): Json {
  const access = route.access ?? 'key';
  return {
    operationId: route.name,
    summary: route.summary,
    ...(route.description !== undefined && { description: route.description }),
    tags: [route.tag],
    security: access === 'open' ? [] : [{ bearer: [] }, { apiKey: [] }],
    ...((access === 'admin' || access === 'metrics') && { 'x-cay-access': access }),
    parameters: [
      ...parameters(route.params, 'path'),
      ...parameters(route.query, 'query'),
      ...Object.entries(route.headers ?? {}).map(([name, description]) => ({
        name,
        in: 'header',
        description,
        schema: { type: 'string' },
      })),
    ],
    ...requestBody(route, schemaOf),
    responses: {
      ...Object.fromEntries(
        Object.entries(route.answers).map(([status, answer]) => [status, response(answer, schemaOf)]),
      ),
      default: {
        description: 'A failure',
        content: { 'application/json': { schema: schemaOf(ErrorSchema, 'output') } },
      },
    },
  };
}

function parameters(schema: z.ZodType | undefined, where: 'path' | 'query'): Json[] {
  if (!schema) return [];
  const { properties = {}, required = [] } = jsonSchema(schema, 'input') as {
    properties?: Record<string, Json>;
    required?: string[];
  };
  return Object.entries(properties).map(([name, property]) => {
    const { description, ...rest } = property;
    return {
      name,
      in: where,
      required: where === 'path' || required.includes(name),
      ...(description !== undefined && { description }),
      schema: rest,
    };
  });
}

function requestBody(route: Route, schemaOf: SchemaOf): Json {
  if (route.rawBody !== undefined)
    return {
      requestBody: { content: { [route.rawBody]: { schema: { type: 'string', format: 'binary' } } } },
    };
  if (!route.body) return {};
  const required = !route.body.safeParse({}).success;
  return {
    requestBody: { required, content: { 'application/json': { schema: schemaOf(route.body, 'input') } } },
  };
}

function response(answer: Answer, schemaOf: SchemaOf): Json {
  const content: Json = {};
  if (answer.schema) content['application/json'] = { schema: schemaOf(answer.schema, 'output') };
  for (const media of answer.media ?? []) {
    content[media] = {
      schema: answer.events
        ? { type: 'string', 'x-cay-events': schemaOf(answer.events, 'output') }
        : { type: 'string', format: 'binary' },
    };
  }
  return { description: answer.description, ...(Object.keys(content).length > 0 && { content }) };
}

function jsonSchema(schema: z.ZodType, io: 'input' | 'output'): Json {
  const { $schema: _, ...rest } = z.toJSONSchema(schema, { io, unrepresentable: 'any' });
  return rest;
}
